/* One device: what it does now and its switch first, then one section at a time. */

import { call, get } from "../core/api.js";
import { hasChannels, isLit, orderText } from "../core/channels.js";
import { ago, exact, near } from "../core/format.js";
import { html } from "../core/html.js";
import { t, word } from "../core/i18n.js";
import { liveDevice, ofDevice, useLoad } from "../core/live_data_hooks.js";
import { go, place } from "../core/router.js";
import { isAdmin, loadNames, mayEdit } from "../core/signed_in_user.js";
import { Badge, Button, Empty, LinkButton, Problem, Skeleton, Tabs, Time } from "../ui/basic_components.js";
import { ChannelRows, channelsSummary } from "../ui/channel_rows.js";
import { ask, confirmed, confirmedByName } from "../ui/dialog.js";
import { Icon } from "../ui/icons.js";
import { tell } from "../ui/toasts.js";
import { DeviceSpark } from "../ui/sparkline.js";
import { DeviceIcon, Life, Presence, RelayState, Switch, useCommand } from "../ui/device_switch.js";
import { Access } from "./device/access.js";
import { Control } from "./device/control.js";
import { History } from "./device/history.js";
import { Rules } from "./device/rules.js";
import { Schedules } from "./device/schedules.js";
import { Setup } from "./device/setup.js";
import { Telemetry } from "./device/telemetry.js";

const tabs = () => ({
  control: [t("Control"), Control],
  telemetry: [t("Charts"), Telemetry],
  schedules: [t("Schedules"), Schedules],
  rules: [t("Rules"), Rules],
  ...(isAdmin() ? { access: [t("Access"), Access] } : {}),
  history: [t("History"), History],
  setup: [t("Connection"), Setup],
});

export function DevicePage() {
  const [deviceId, tab = "control"] = place.value.rest;
  const path = `/devices/${encodeURIComponent(deviceId)}`;
  const loaded = useLoad((signal) => get(path, signal), [path], ofDevice(deviceId, "device_", "credentials_"));
  if (loaded.data === undefined) {
    if (loaded.error?.status === 404) return html`<h1 tabindex="-1">${t("Not found")}</h1><${Empty} icon="search" title=${t("There is no such device")} action=${html`<${LinkButton} href="#/devices" kind="main">${t("Show all devices")}<//>`} />`;
    return loaded.error ? html`<${Problem} error=${loaded.error} retry=${loaded.reload} />` : html`<${Skeleton} lines=${5} />`;
  }
  const device = liveDevice(loaded.data);
  const open = tabs();
  const Body = (open[tab] ?? open.control)[1];
  return html`
    <div class="device-bar"><a href="#/devices" class="back"><${Icon} name="chevron-left" size=${18} />${t("Devices")}</a><${Actions} device=${device} path=${path} reload=${loaded.reload} /></div>
    <${Hero} device=${device} path=${path} reload=${loaded.reload} compact=${tab !== "control" && tab in open} />
    <${Tabs} label=${t("Sections of the device")} base=${`device/${deviceId}`} sections=${Object.entries(open).map(([name, [label]]) => [name, label])} chosen=${tab} />
    <div class="tab"><${Body} key=${tab} device=${device} path=${path} reload=${loaded.reload} /></div>`;
}

function Hero({ device, path, reload, compact }) {
  const command = useCommand(device);
  const several = hasChannels(device);
  const { deviceId } = device;
  const changed = useLoad((signal) => lastChange(deviceId, signal), [deviceId], ofDevice(deviceId, "relay_changed"));
  const slots = useLoad((signal) => get(`${path}/schedules`, signal), [path], ofDevice(deviceId, "schedule_"));
  const next = (slots.data ?? []).filter(({ enabled, nextFireAt }) => enabled && nextFireAt).sort((one, other) => Date.parse(one.nextFireAt) - Date.parse(other.nextFireAt))[0];
  const where = [device.project.name, device.location].filter(Boolean).join(" · ");
  return html`<section class=${`hero ${isLit(device) && device.isOnline ? "on" : ""} ${compact ? "compact" : ""} ${several ? "several" : ""}`} aria-label=${device.name}>
    <div class="hero-head">
      <${DeviceIcon} device=${device} size=${28} />
      <div><h1 tabindex="-1">${device.name}</h1><small>${where}</small></div>
    </div>
    <div class="hero-body">
      <div class="hero-state">
        ${several ? compact ? html`<p class="hero-relay">${channelsSummary(device)}</p>` : null : html`<p class="hero-relay"><${RelayState} device=${device} /></p>
        <p class="dim">${changed.data ? html`${t("since {when}, by {who}", { when: near(changed.data.timestamp), who: changed.data.who })}` : t("as the device reported it")}</p>`}
        <p class="line"><${Presence} device=${device} /><span class="dim">${t("heard")} <${Time} at=${device.lastSeen} none=${t("never")} /></span>${device.deviceStatus === "ACTIVE" ? null : html`<${Badge} kind="warn">${word(device.deviceStatus)}<//>`}</p>
        ${next ? html`<p class="line dim" title=${exact(next.nextFireAt)}><${Icon} name="calendar-clock" size=${16} />${t("Next: {command} {when}", { command: orderText(next.nextEdge === "off" ? next.offCommand : next.onCommand, device.channels), when: near(next.nextFireAt) })}</p>` : null}
      </div>
      <${DeviceSpark} device=${device} />
      ${several ? null : html`<div class="hero-switch"><${Switch} device=${device} command=${command} large /><${Life} device=${device} life=${command[0]} /></div>`}
    </div>
    ${several && !compact ? html`<${ChannelRows} device=${device} path=${path} reload=${reload} />` : null}
    ${device.deviceStatus === "PENDING" ? html`<p class="hint"><${Icon} name="info" size=${18} />${t("It has no credentials yet.")} <a href=${`#/device/${deviceId}/setup`}>${t("Set it up")}</a></p>` : null}
    <${Health} health=${device.health} />
  </section>`;
}

async function lastChange(deviceId, signal) {
  const [{ data }, named] = await Promise.all([get(`/events?type=relay_changed&deviceId=${deviceId}&limit=1`, signal), loadNames()]);
  return data[0] ? { timestamp: data[0].timestamp, who: word(named(data[0].source)) === data[0].source ? named(data[0].source) : word(named(data[0].source)) } : null;
}

/* What the service knows about the device's own troubles; only what is out of order. */
function Health({ health }) {
  if (!health) return null;
  const said = [];
  if (Math.abs(health.clockOffsetMs ?? 0) > 120_000) said.push(t("Its clock is {minutes} min off.", { minutes: Math.round(health.clockOffsetMs / 60_000) }));
  if (health.lastDrop) said.push(t("A message was dropped {when}: {reason}", { when: ago(health.lastDrop.at ?? health.lastDrop), reason: health.lastDrop.reason ?? "" }));
  const { lastRefusal } = health;
  if (lastRefusal) said.push(lastRefusal.topic ? t("It was refused {when}: {reason}, {topic}", { when: ago(lastRefusal.at), reason: lastRefusal.reason, topic: lastRefusal.topic }) : t("It was refused {when}: {reason}", { when: ago(lastRefusal.at), reason: lastRefusal.reason }));
  return said.map((text) => html`<p class="hint warn"><${Icon} name="triangle-alert" size=${18} />${text}</p>`);
}

function Actions({ device, path, reload }) {
  if (!mayEdit()) return null;
  const off = device.deviceStatus === "DISABLED";
  const toggle = async () => {
    const send = () => call("PATCH", `${path}/toggle`);
    if (off) await send();
    else if (!(await confirmed(t("Disable this device?"), t("It is disconnected and accepts no commands until it is enabled again."), t("Disable"), send))) return;
    await reload();
  };
  const canToggle = device.deviceStatus === "ACTIVE" || off;
  return html`<div class="actions">
    <${Button} kind="quiet" icon="pencil" label=${t("Edit")} act=${() => edit(device, path, reload)} />
    ${canToggle ? html`<${Button} kind="quiet" icon=${off ? "play" : "ban"} label=${off ? t("Enable") : t("Disable")} act=${toggle} />` : null}
    <${Button} kind="quiet danger" icon="trash" label=${t("Delete")} act=${() => remove(device, path)} />
  </div>`;
}

const ABOUT = () => [["location", t("Place")], ["description", t("Description")], ["manufacturer", t("Manufacturer")], ["model", t("Model")]];

async function edit(device, path, reload) {
  const projects = await get("/projects");
  const fields = [
    { name: "name", label: t("Name"), required: true, value: device.name },
    { name: "projectId", label: t("Project"), options: projects.map(({ projectId, name }) => [projectId, name]), value: device.project.projectId },
    ...ABOUT().map(([name, label]) => ({ name, label, value: device[name] ?? "" })),
    { name: "tags", label: t("Tags"), value: device.tags.join(", "), hint: t("Separated by commas") },
  ];
  const send = (values) => {
    const emptied = Object.fromEntries(ABOUT().map(([name]) => [name, values[name] ?? null]));
    const tags = (values.tags ?? "").split(",").map((tag) => tag.trim()).filter(Boolean);
    return call("PUT", path, { ...values, ...emptied, tags });
  };
  if (await ask({ title: t("Edit the device"), fields, action: t("Save"), send })) await reload();
}

async function remove(device, path) {
  const intro = t("Its schedules, rules, grants, telemetry, approvals and credentials are deleted too, and it is disconnected at once. This cannot be undone.");
  const gone = await confirmedByName(t("Delete “{name}”?", { name: device.name }), intro, device.name, t("Delete permanently"), () => call("DELETE", path));
  if (!gone) return;
  tell(t("The device has been deleted."));
  go("devices");
}

