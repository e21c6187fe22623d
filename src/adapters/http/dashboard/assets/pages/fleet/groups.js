/* Groups of devices: their members and their grants. */

import { call, get, getPage } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { n, t } from "../../core/i18n.js";
import { ofKind, useLoad } from "../../core/live_data_hooks.js";
import { go, place, replace } from "../../core/router.js";
import { isAdmin, mayEdit } from "../../core/signed_in_user.js";
import { Button, Card, Empty, Loaded } from "../../ui/basic_components.js";
import { ask, confirmed, DialogForm, openDialog } from "../../ui/dialog.js";
import { Grants } from "../device/access.js";
import { Search } from "../devices.js";
import { GroupActionReport, GroupActions, richest } from "./group_actions.js";

const CHANGES = ofKind("group_");
const DEVICES = ofKind("device_updated", "device_deleted");
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
  const loaded = useLoad((signal) => (group.data ? get(`/devices?${new URLSearchParams({ groupId: group.data.groupId, limit: MANY })}`, signal) : []), [group.data?.groupId, group.data?.devices.length], DEVICES);
  const [report, setReport] = useState(null);
  const members = loaded.data ?? [];
  const back = html`<p class="back"><a href="#/fleet/groups">${t("All groups")}</a></p>`;
  return html`${back}<${Loaded} of=${group}>${(found) => html`
    <${Members} group=${found} path=${path} reload=${group.reload} />
    ${report ? html`<${GroupActionReport} ...${report} />` : null}
    ${mayEdit() && found.devices.length ? html`<${GroupActions} group=${found} members=${members} path=${path} show=${setReport} />` : null}
    ${isAdmin() ? html`<${Grants} path=${path} isGroup title=${t("Who may switch the group")} none=${t("Nobody has a grant on this group")} commandsOf=${() => commandsOf(found.devices, members)} channels=${channelsOf(members)} />` : null}`}<//>`;
}

/* Those of all devices, by number. Of one number the devices may have different ones: all are named. */
function channelsOf(members) {
  const found = new Map();
  for (const each of members.flatMap(({ channels }) => channels)) found.set(each.channel, [...(found.get(each.channel) ?? []), each]);
  const names = (same) => [...new Set(same.map(({ name }) => name))].join(" / ");
  return [...found.values()].map((same) => ({ ...same[0], name: names(same) })).sort((one, other) => one.channel - other.channel);
}

/* What a grant can name. Without a device: what every device has. */
const commandsOf = (devices, members) => (devices.length ? get(`/devices/${richest(devices, members).deviceId}/commands`) : [{ name: "ON" }, { name: "OFF" }, { name: "TOGGLE" }, { name: "STATUS" }]);

function Members({ group: { groupId, projectId, name, description, devices }, path, reload }) {
  const remove = () => confirmed(t("Delete the group “{name}”?", { name }), t("Its grants go with it. The devices stay."), t("Delete"), () => call("DELETE", path)).then((done) => done && replace("fleet/groups"));
  const choice = () => choose(path, name, projectId).then((done) => done && reload());
  const actions = isAdmin() ? html`<${Button} icon="pencil" act=${choice}>${t("Choose devices")}<//><${Button} kind="quiet danger" icon="trash" label=${t("Delete {name}", { name })} act=${remove} />` : null;
  return html`<${Card} title=${name} actions=${actions}>
    <p class="dim">${[n("{count} device", "{count} devices", devices.length), description].filter(Boolean).join(" · ")}</p>
    ${devices.length ? html`<ul class="chips members" aria-label=${t("Devices of “{name}”", { name })}>${devices.slice(0, MANY).map((each) => html`<li key=${each.deviceId}><a href=${`#/device/${each.deviceId}`}>${each.name}</a></li>`)}</ul><p><a href=${`#/devices?group=${groupId}`}>${t("Show them in the device list")}</a></p>` : html`<${Empty} icon="inbox" title=${t("No device is in this group yet")} />`}
  <//>`;
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
