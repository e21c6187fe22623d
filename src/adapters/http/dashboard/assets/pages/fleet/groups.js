/* Groups of devices: their members, and one command for all of them with an outcome for each. */

import { call, get } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { n, t, word } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live.js";
import { isAdmin, mayEdit } from "../../core/session.js";
import { Badge, Button, Card, Empty, Loaded } from "../../ui/base.js";
import { ask, confirmed } from "../../ui/dialog.js";

const CHANGES = ofKind("group_");
const KINDS = { QUEUED: "good", WAITS_FOR_APPROVAL: "wait", REFUSED: "bad" };
const SHOWN = 5;

export function Groups() {
  const groups = useLoad((signal) => get("/groups", signal), [], CHANGES);
  const [report, setReport] = useState(null);
  const add = isAdmin() ? html`<${Button} kind="main" icon="plus" act=${() => create(groups.reload)}>${t("New group")}<//>` : null;
  return html`<${Card} title=${t("Groups")} actions=${add}>
      <p class="dim">${t("Devices of one project that belong together. A command to a group is checked for each device on its own; a grant on a group covers whoever is in it.")}</p>
      <${Loaded} of=${groups}>${(all) => all.length ? html`<ul class="lines">${all.map((group) => html`<${Group} key=${group.groupId} group=${group} reload=${groups.reload} show=${setReport} />`)}</ul>` : html`<${Empty} icon="inbox" title=${t("No groups yet")} />`}<//>
    <//>
    ${report ? html`<${Report} ...${report} />` : null}`;
}

function Group({ group: { groupId, projectId, name, description, deviceCount }, reload, show }) {
  const path = `/groups/${groupId}`;
  const remove = () => confirmed(t("Delete the group “{name}”?", { name }), t("Its grants go with it. The devices stay."), t("Delete"), () => call("DELETE", path)).then((done) => done && reload());
  return html`<li class="entry" aria-label=${name}><div class="grow"><strong>${name}</strong>
      <small>${[n("{count} device", "{count} devices", deviceCount), description].filter(Boolean).join(" · ")}</small></div>
    <div class="actions">${mayEdit() && deviceCount ? html`<${Button} small kind="main" icon="send" act=${() => send(path, name).then((done) => done && show(done))}>${t("Send a command")}<//>` : null}
      ${isAdmin() ? html`<${Button} small act=${() => choose(path, name, projectId).then((done) => done && reload())}>${t("Devices")}<//><${Button} small kind="quiet danger" icon="trash" label=${t("Delete {name}", { name })} act=${remove} />` : null}</div></li>`;
}

/* First who is meant and what would come of it, then the command itself. */
async function send(path, name) {
  const previewed = await ask({
    title: t("A command to “{name}”", { name }),
    fields: [{ name: "cmd", label: t("Command"), value: "ON", required: true }, { name: "reason", label: t("Reason") }],
    action: t("Preview"),
    send: async (command) => ({ command, preview: await call("POST", `${path}/command/preview`, command) }),
  });
  if (!previewed) return null;
  const { command, preview } = previewed;
  const report = await ask({
    title: t("Send {cmd} to “{name}”?", { cmd: command.cmd, name }),
    intro: summary(preview),
    action: n("Send to {count} device", "Send to {count} devices", preview.queued + preview.waiting),
    send: () => call("POST", `${path}/command`, command),
  });
  return report ? { name, cmd: command.cmd, report } : null;
}

function summary({ queued, waiting, refused, devices }) {
  const counts = [[queued, t("{count} would be sent", { count: queued })], [waiting, t("{count} would wait for approval", { count: waiting })], [refused, t("{count} would be refused", { count: refused })]];
  const reasons = devices.filter(({ error }) => error).slice(0, SHOWN).map((each) => `${each.name}: ${each.message}`);
  return [counts.filter(([count]) => count).map(([, text]) => text).join(", "), ...reasons].join(" · ");
}

function Report({ name, cmd, report: { devices } }) {
  return html`<${Card} title=${t("{cmd} to “{name}”", { cmd, name })}><ul class="lines" aria-label=${t("Outcome of each device")}>${devices.map((each) => html`<li class="entry" key=${each.deviceId}><div class="grow"><a href=${`#/device/${each.deviceId}`}>${each.name}</a>${each.message ? html` <small>${each.message}</small>` : null}</div><${Badge} kind=${KINDS[each.outcome]}>${word(`GROUP_${each.outcome}`)}<//></li>`)}</ul><//>`;
}

async function create(reload) {
  const projects = await get("/projects");
  const made = await ask({
    title: t("New group"),
    fields: [{ name: "name", label: t("Name"), required: true }, { name: "description", label: t("Description") }, { name: "projectId", label: t("Project"), options: projects.map((each) => [each.projectId, each.name]) }],
    action: t("Create"),
    send: (values) => call("POST", "/groups", values),
  });
  if (!made) return;
  await choose(`/groups/${made.groupId}`, made.name, made.projectId);
  await reload();
}

async function choose(path, name, projectId) {
  const [devices, group] = await Promise.all([get(`/devices?projectId=${projectId}&sort=name`), get(path)]);
  const before = group.devices.map(({ deviceId }) => deviceId);
  return ask({
    title: t("Devices of “{name}”", { name }),
    intro: t("Grants on the group cover a device as long as it is chosen here."),
    fields: [{ name: "chosen", label: t("Devices"), type: "many", value: before, options: devices.map((each) => [each.deviceId, each.name]) }],
    action: t("Save"),
    send: ({ chosen }) => call("PATCH", `${path}/devices`, { add: chosen.filter((each) => !before.includes(each)), remove: before.filter((each) => !chosen.includes(each)) }),
  });
}
