/* All devices: searched, filtered, sorted and paged by the service, so that ten thousand are as quick as ten. */

import { get, getPage } from "../core/api.js";
import { hasChannels } from "../core/channels.js";
import { whole } from "../core/format.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { n, t, word } from "../core/i18n.js";
import { liveDevice, ofKind, useLoad } from "../core/live_data_hooks.js";
import { place, setQuery } from "../core/router.js";
import { mayEdit } from "../core/signed_in_user.js";
import { Badge, Button, Choice, Empty, LinkButton, Loaded, PageHead, Time } from "../ui/basic_components.js";
import { FewChannels } from "../ui/channel_rows.js";
import { Icon } from "../ui/icons.js";
import { DeviceSpark } from "../ui/sparkline.js";
import { DeviceIcon, Life, Presence, RelayState, Switch, useCommand } from "../ui/device_switch.js";

const PAGE = 24;
const TYPING_MS = 250;
const CHANGES = ofKind("device_message_set_aside", "device_registered", "device_updated", "device_deleted", "device_enabled", "device_disabled", "credentials_", "project_", "group_");
const MOVES = ofKind("device_online", "device_offline", "relay_changed");

export function Devices() {
  const { search = "", state = "", sort = "", project = "", group = "", tag = "", cursor = "", at = "0", view = "cards" } = place.value.query;
  const query = new URLSearchParams(Object.entries({ search, state, sort: sort || "name", projectId: project, groupId: group, tag, cursor, limit: PAGE }).filter(([, value]) => value !== ""));
  const page = useLoad((signal) => getPage(`/devices?${query}`, signal), [String(query)], (event) => CHANGES(event) || (state !== "" && MOVES(event)));
  const summary = useLoad((signal) => get("/devices/summary", signal), [], (event) => CHANGES(event) || MOVES(event));
  const projects = useLoad((signal) => get("/projects", signal), [], ofKind("project_"));
  const groups = useLoad((signal) => get("/groups", signal), [], ofKind("group_"));
  const filter = (changes) => setQuery({ ...changes, cursor: "", at: "" });
  const filtered = search !== "" || state !== "" || project !== "" || group !== "" || tag !== "";
  const add = mayEdit() ? html`<${LinkButton} href="#/add" kind="main" icon="plus">${t("Add a device")}<//><${LinkButton} href="#/fleet/add" icon="list-checks">${t("Add many")}<//>` : null;
  return html`
    <${PageHead} title=${t("Devices")} actions=${add} />
    <div class="toolbar">
      <${Search} value=${search} onChange=${(value) => filter({ search: value })} />
      <select aria-label=${t("Sort")} value=${sort} onChange=${(event) => filter({ sort: event.currentTarget.value })}>
        ${SORTS().map(([value, label]) => html`<option value=${value} selected=${value === sort}>${label}</option>`)}
      </select>
      ${projects.data?.length > 1 ? html`<select aria-label=${t("Project")} value=${project} onChange=${(event) => filter({ project: event.currentTarget.value })}><option value="">${t("All projects")}</option>${projects.data.map(({ projectId, name }) => html`<option value=${projectId} selected=${projectId === project}>${name}</option>`)}</select>` : null}
      ${groups.data?.length ? html`<select aria-label=${t("Group")} value=${group} onChange=${(event) => filter({ group: event.currentTarget.value })}><option value="">${t("All groups")}</option>${groups.data.map(({ groupId, name }) => html`<option value=${groupId} selected=${groupId === group}>${name}</option>`)}</select>` : null}
      ${tag ? html`<${Button} icon="x" act=${() => filter({ tag: "" })} aria-label=${t("Show devices without the tag {tag} too", { tag })}>${tag}<//>` : null}
      <${Button} kind="only-wide" icon=${view === "cards" ? "list" : "layout-grid"} label=${view === "cards" ? t("Show as a list") : t("Show as cards")} act=${() => setQuery({ view: view === "cards" ? "list" : "" })} />
    </div>
    ${summary.data?.deadLetters ? html`<p class="hint" role="status"><${Icon} name="triangle-alert" size=${18} /><a href="#/log?type=device_message_set_aside">${n("{count} message of a device is set aside, because the database refused it.", "{count} messages of devices are set aside, because the database refused them.", summary.data.deadLetters)}</a></p>` : null}
    <${Choice} label=${t("State")} options=${states(summary.data)} value=${state} onChange=${(value) => filter({ state: value })} />
    <${Loaded} of=${page} lines=${6}>${({ data, total, next }) => html`
      ${data.length ? html`<ul class=${`devices ${view}`} aria-label=${t("Devices")}>${data.map((device) => html`<${DeviceCard} key=${device.deviceId} device=${device} />`)}</ul>` : filtered ? html`<${Empty} icon="search" title=${t("No device matches")} action=${html`<${Button} act=${() => filter({ search: "", state: "", project: "", group: "", tag: "" })}>${t("Show all devices")}<//>`} />` : html`<${Empty} icon="plug" title=${t("No devices yet")} action=${add}>${t("Add a device, put its credentials into its firmware, and switch it from here.")}<//>`}
      <${Pager} at=${Number(at)} cursor=${cursor} next=${next} shown=${data.length} total=${total} />`}
    <//>`;
}

const SORTS = () => [["", t("By name")], ["created", t("Oldest first")], ["-lastSeen", t("Heard last")], ["lastSeen", t("Silent longest")]];

const states = (counts) => [["", t("All"), "total"], ["ONLINE", t("Online"), "online"], ["OFFLINE", t("Offline"), "offline"], ["ON", t("Switched on"), "on"], ...[["PENDING", t("Not set up")], ["DISABLED", t("Disabled")], ["REVOKED", t("Revoked")]].map(([name, label]) => [name, label, name.toLowerCase()]).filter(([, , count]) => counts?.[count])].map(([name, label, count]) => [name, label, counts ? whole(counts[count]) : null]);

export function Search({ value, onChange }) {
  const [typed, setTyped] = useState(value);
  const timer = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setTyped(value), [value]);
  const type = (event) => {
    const text = event.currentTarget.value;
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(text.trim()), TYPING_MS);
  };
  return html`<label class="search"><${Icon} name="search" size=${18} /><input type="search" value=${typed} placeholder=${t("Name, place, tag or id")} aria-label=${t("Find devices")} onInput=${type} /></label>`;
}

function DeviceCard({ device: loaded }) {
  const device = liveDevice(loaded);
  const command = useCommand(device);
  const where = [device.project.name, device.location].filter(Boolean).join(" · ");
  const several = hasChannels(device);
  return html`<li class=${`device-card ${several ? "several" : ""}`} aria-label=${device.name}>
    <${DeviceIcon} device=${device} />
    <div class="device-name"><a href=${`#/device/${device.deviceId}`}>${device.name}</a><small>${where}${device.tags.map((each) => html` <a class="tag" href=${`#/devices?${new URLSearchParams({ tag: each })}`}>${each}</a>`)}</small></div>
    <div class="device-state"><${Presence} device=${device} />${device.deviceStatus === "ACTIVE" ? null : html`<${Badge} kind="warn">${word(device.deviceStatus)}<//>`}${several ? null : html`<${RelayState} device=${device} />`}</div>
    <small class="device-seen">${t("heard")} <${Time} at=${device.lastSeen} none=${t("never")} /></small>
    <${DeviceSpark} device=${device} />
    ${several ? html`<${FewChannels} device=${device} />` : html`<${Switch} device=${device} command=${command} />
    <${Life} device=${device} life=${command[0]} />`}
  </li>`;
}

function Pager({ at, cursor, next, shown, total }) {
  const passed = useRef([]);
  if (total === null || total <= PAGE) return html`<p class="dim pager">${n("{count} device", "{count} devices", total ?? shown)}</p>`;
  const forward = () => {
    passed.current.push({ cursor, at: at || "" });
    setQuery({ cursor: new URLSearchParams(next.split("?")[1]).get("cursor"), at: at + shown });
  };
  const back = () => setQuery(passed.current.pop() ?? { cursor: "", at: "" });
  return html`<nav class="pager" aria-label=${t("Pages")}>
    <${Button} icon="chevron-left" disabled=${cursor === ""} act=${back} label=${t("Previous page")} />
    <span>${t("{from} to {to} of {total}", { from: whole(at + (shown ? 1 : 0)), to: whole(at + shown), total: whole(total) })}</span>
    <${Button} icon="chevron-right" disabled=${next === null} act=${forward} label=${t("Next page")} />
  </nav>`;
}
