/* Groups of devices: their members, their grants, and what is done to all of them with an outcome for each. */

import { call, get, getPage } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { errorText, n, t, word } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live_updates.js";
import { go, place, replace } from "../../core/router.js";
import { isAdmin, mayEdit } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded } from "../../ui/basic_components.js";
import { ask, confirmed, DialogForm, openDialog } from "../../ui/dialog.js";
import { editRule } from "../../ui/rule_form.js";
import { editSlot } from "../../ui/slot_form.js";
import { Grants } from "../device/access.js";
import { Search } from "../devices.js";

const CHANGES = ofKind("group_");
const DEVICES = ofKind("device_updated", "device_deleted");
const KINDS = { DONE: "good", QUEUED: "good", WAITS_FOR_APPROVAL: "wait", REFUSED: "bad" };
const SHOWN = 5;
const FOUND = 50;
const MANY = 200;


export function Groups() {
  const [, groupId] = place.value.rest;
  return groupId ? html`<${GroupPage} key=${groupId} path=${`/groups/${groupId}`} />` : html`<${GroupList} />`;
}

function GroupList() {
  const groups = useLoad((signal) => get("/groups", signal), [], CHANGES);
  const add = isAdmin() ? html`<${Button} kind="main" icon="plus" act=${create}>${t("New group")}<//>` : null;
  return html`<${Card} title=${t("Groups")} actions=${add}>
      <p class="dim">${t("Devices of one project that belong together. A command to a group is checked for each device on its own; a grant on a group covers whoever is in it.")}</p>
      <${Loaded} of=${groups}>${(all) => all.length ? html`<ul class="lines">${all.map((group) => html`<${Row} key=${group.groupId} group=${group} />`)}</ul>` : html`<${Empty} icon="inbox" title=${t("No groups yet")} action=${add} />`}<//>
    <//>`;
}

const Row = ({ group: { groupId, name, description, deviceCount } }) => html`<li class="entry" aria-label=${name}><div class="grow"><a href=${`#/fleet/groups/${groupId}`}><strong>${name}</strong></a>
  <small>${[n("{count} device", "{count} devices", deviceCount), description].filter(Boolean).join(" · ")}</small></div></li>`;

function GroupPage({ path }) {
  const group = useLoad((signal) => get(path, signal), [path], (event) => CHANGES(event) || DEVICES(event));
  const [report, setReport] = useState(null);
  const back = html`<p class="back"><a href="#/fleet/groups">${t("All groups")}</a></p>`;
  return html`${back}<${Loaded} of=${group}>${(found) => html`
    <${Members} group=${found} path=${path} reload=${group.reload} />
    ${report ? html`<${Report} ...${report} />` : null}
    ${mayEdit() && found.devices.length ? html`<${Together} group=${found} path=${path} show=${setReport} />` : null}
    ${isAdmin() ? html`<${Grants} path=${path} isGroup title=${t("Who may switch the group")} none=${t("Nobody has a grant on this group")} commandsOf=${() => commandsOf(found.devices)} />` : null}`}<//>`;
}

/* What a grant can name. Without a device: what every device has. */
const commandsOf = ([first]) => (first ? get(`/devices/${first.deviceId}/commands`) : [{ name: "ON" }, { name: "OFF" }, { name: "TOGGLE" }, { name: "STATUS" }]);

function Members({ group: { groupId, projectId, name, description, devices }, path, reload }) {
  const remove = () => confirmed(t("Delete the group “{name}”?", { name }), t("Its grants go with it. The devices stay."), t("Delete"), () => call("DELETE", path)).then((done) => done && replace("fleet/groups"));
  const choice = () => choose(path, name, projectId).then((done) => done && reload());
  const actions = isAdmin() ? html`<${Button} icon="pencil" act=${choice}>${t("Choose devices")}<//><${Button} kind="quiet danger" icon="trash" label=${t("Delete {name}", { name })} act=${remove} />` : null;
  return html`<${Card} title=${name} actions=${actions}>
    <p class="dim">${[n("{count} device", "{count} devices", devices.length), description].filter(Boolean).join(" · ")}</p>
    ${devices.length ? html`<ul class="chips members" aria-label=${t("Devices of “{name}”", { name })}>${devices.slice(0, MANY).map((each) => html`<li key=${each.deviceId}><a href=${`#/device/${each.deviceId}`}>${each.name}</a></li>`)}</ul><p><a href=${`#/devices?group=${groupId}`}>${t("Show them in the device list")}</a></p>` : html`<${Empty} icon="inbox" title=${t("No device is in this group yet")} />`}
  <//>`;
}

/* What is done to all members: each decides on its own, and the report says what became of each. */
function Together({ group: { name, devices }, path, show }) {
  const of = `/devices/${devices[0].deviceId}`;
  const reported = (title) => (report) => report && show({ title, report });
  const meant = n("For {count} device: {names}.", "For {count} devices: {names}.", devices.length, { names: nameSome(devices) });
  const plan = async () => {
    const chosen = await askSlot(t("Plan a slot of “{name}”", { name }), `${meant} ${t("What the slot of a device holds now is replaced.")}`, t("Next"), Number);
    if (chosen != null) await editSlot(chosen, null, path, of, meant).then(reported(t("Slot {number} of “{name}”", { number: chosen, name })));
  };
  const cancel = () => askSlot(t("Cancel a slot of “{name}”?", { name }), `${meant} ${t("It switches nothing any more, not even off. It stays in the history.")}`, t("Cancel the slot"), (number) => call("DELETE", `${path}/schedules/${number}`), true).then(reported(t("Cancelled at “{name}”", { name })));
  const rule = () => editRule(null, path, of, `${meant} ${t("It is tried on {name}.", { name: devices[0].name })}`).then(reported(t("New rule for “{name}”", { name })));
  return html`<${Card} title=${t("For all of them")}>
    <p class="dim">${t("Each device gets a copy of its own. A device that joins later gets none.")}</p>
    <div class="actions start"><${Button} kind="main" icon="send" act=${() => send(path, name).then((done) => done && show(done))}>${t("Send a command")}<//>
      <${Button} icon="calendar-clock" act=${plan}>${t("Plan a slot")}<//><${Button} act=${cancel}>${t("Cancel a slot")}<//><${Button} icon="activity" act=${rule}>${t("New rule")}<//></div>
  <//>`;
}

const askSlot = (title, intro, action, send, danger = false) => ask({ title, intro, action, danger, fields: [{ name: "number", label: t("Slot"), options: [0, 1, 2, 3, 4].map((each) => [each, String(each)]) }], send: ({ number }) => send(number) });

function nameSome(devices) {
  const names = devices.slice(0, SHOWN).map(({ name }) => name).join(", ");
  return devices.length > SHOWN ? t("{names} and {count} more", { names, count: devices.length - SHOWN }) : names;
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
  return report ? { title: t("{cmd} to “{name}”", { cmd: command.cmd, name }), report } : null;
}

function summary({ queued, waiting, refused, devices }) {
  const counts = [[queued, t("{count} would be sent", { count: queued })], [waiting, t("{count} would wait for approval", { count: waiting })], [refused, t("{count} would be refused", { count: refused })]];
  const reasons = devices.filter(({ error }) => error).slice(0, SHOWN).map((each) => `${each.name}: ${errorText({ code: each.error, message: each.message })}`);
  return [counts.filter(([count]) => count).map(([, text]) => text).join(", "), ...reasons].join(" · ");
}

function Report({ title, report: { devices } }) {
  return html`<${Card} title=${title}><ul class="lines" aria-label=${t("Outcome of each device")}>${devices.map((each) => html`<li class="entry" key=${each.deviceId}><div class="grow"><a href=${`#/device/${each.deviceId}`}>${each.name}</a>${each.error ? html` <small>${errorText({ code: each.error, message: each.message })}</small>` : null}</div><${Badge} kind=${KINDS[each.outcome]}>${word(`GROUP_${each.outcome}`)}<//></li>`)}</ul><//>`;
}

async function create() {
  const projects = await get("/projects");
  const made = await ask({
    title: t("New group"),
    fields: [{ name: "name", label: t("Name"), required: true }, { name: "description", label: t("Description") }, { name: "projectId", label: t("Project"), options: projects.map((each) => [each.projectId, each.name]) }],
    action: t("Create"),
    send: (values) => call("POST", "/groups", values),
  });
  if (!made) return;
  await choose(`/groups/${made.groupId}`, made.name, made.projectId);
  go(`fleet/groups/${made.groupId}`);
}

async function choose(path, name, projectId) {
  const { devices } = await get(path);
  return openDialog(MembersForm, { path, name, projectId, devices });
}

/* Of ten thousand devices too: the service finds those that are not chosen yet. */
function MembersForm({ path, name, projectId, devices, done }) {
  const [chosen, setChosen] = useState(() => new Map(devices.map((each) => [each.deviceId, each.name])));
  const [search, setSearch] = useState("");
  const found = useLoad((signal) => getPage(`/devices?${new URLSearchParams({ projectId, sort: "name", limit: FOUND, search })}`, signal), [search]);
  const toggle = ({ deviceId, name: text }) => setChosen((before) => new Map(before.has(deviceId) ? [...before].filter(([id]) => id !== deviceId) : [...before, [deviceId, text]]));
  const send = () => {
    const before = devices.map(({ deviceId }) => deviceId);
    return call("PATCH", `${path}/devices`, { add: [...chosen.keys()].filter((id) => !before.includes(id)), remove: before.filter((id) => !chosen.has(id)) });
  };
  const chip = (device, pressed) => html`<button type="button" key=${device.deviceId} aria-pressed=${String(pressed)} onClick=${() => toggle(device)}>${device.name}</button>`;
  return html`<${DialogForm} title=${t("Devices of “{name}”", { name })} intro=${t("Grants on the group cover a device as long as it is chosen here.")} action=${t("Save")} done=${done} send=${send}>
    <fieldset class="field"><legend>${n("{count} device chosen", "{count} devices chosen", chosen.size)}</legend><div class="chips">${[...chosen].map(([deviceId, text]) => chip({ deviceId, name: text }, true))}</div></fieldset>
    <${Search} value=${search} onChange=${setSearch} />
    <${Loaded} of=${found}>${({ data, total }) => html`<div class="chips">${data.filter(({ deviceId }) => !chosen.has(deviceId)).map((each) => chip(each, false))}</div>
      ${total > data.length ? html`<p class="dim">${n("{count} more device matches: search for it.", "{count} more devices match: search for them.", total - data.length)}</p>` : null}`}<//>
  <//>`;
}
