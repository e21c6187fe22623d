/* All devices. ON and OFF are separate buttons, so that stale data never reverses an action. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, tell, time } from "../dom.js";
import { ask } from "../dialog.js";
import { mayEdit } from "../roles.js";
import { order } from "../orders.js";

const AT_MOST = 200;

export async function devices(room, { me, fleet, signal }) {
  const [listed, projects] = await Promise.all([get("/devices", signal), get("/projects", signal)]);
  const search = h("input", { type: "search", placeholder: "Name, location, tag or id", "aria-label": "Find devices" });
  const choices = [["", "All projects"], ...projects.map(({ projectId, name }) => [projectId, name])];
  const project = h("select", { "aria-label": "Project" }, choices.map(([value, label]) => h("option", { value }, label)));
  const list = h("div");
  const lines = new Map();

  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = listed.filter((device) => (!project.value || device.project.projectId === project.value) && words.every((word) => text(device).includes(word)));
    lines.clear();
    for (const device of found.slice(0, AT_MOST)) lines.set(device.deviceId, line(device, fleet, signal));
    const rows = [...lines.values()].map((each) => each.row);
    const more = found.length > AT_MOST ? h("p", { class: "dim" }, `The first ${AT_MOST} of ${found.length}; search to find others.`) : null;
    fill(list, table(["", "Device", "Relay", "Last seen", "Switch", ""], rows, listed.length ? "No device matches." : "No devices yet."), more);
  };
  search.addEventListener("input", draw);
  project.addEventListener("change", draw);
  const unwatch = fleet.watch((deviceId) => (deviceId ? lines.get(deviceId)?.update() : lines.forEach((each) => each.update())));
  signal.addEventListener("abort", unwatch);
  const add = mayEdit(me) ? button("Register a device", () => register(projects), { kind: "main" }) : null;
  fill(room, h("h1", null, "Devices"), section(`Total: ${listed.length}`, [search, project, add], list));
  draw();
}

const text = (device) =>
  [device.name, device.deviceId, device.location, device.appType, device.project.name, ...device.tags].filter(Boolean).join(" ").toLowerCase();

function line(device, fleet, signal) {
  const online = h("span", { class: "presence" });
  const relay = h("span");
  const seen = h("span");
  const said = h("output");
  const takes = device.deviceStatus === "ACTIVE";
  const switched = (cmd) => button(cmd, () => order(device.deviceId, { cmd }, said, signal), { kind: cmd.toLowerCase(), disabled: !takes, title: `${cmd}: ${device.name}` });
  const name = h("a", { href: `#/device/${device.deviceId}` }, device.name);
  const about = h("small", null, [device.project.name, device.location].filter(Boolean).join(" · "));
  const update = () => {
    const now = fleet.devices.get(device.deviceId);
    presence(online, now?.isOnline ?? device.isOnline);
    fill(relay, relayBadge(now ? now.relay : word(device.relayState)));
    fill(seen, time(now?.lastSeen ?? device.lastSeen));
  };
  update();
  const state = takes ? null : badge(device.deviceStatus.toLowerCase(), "dim");
  return { row: row(online, [name, about], [relay, state], seen, h("div", { class: "switches" }, switched("ON"), switched("OFF")), said), update };
}

export function presence(element, isOnline) {
  element.className = `presence ${isOnline ? "online" : ""}`;
  fill(element, isOnline ? "online" : "offline");
}

export const word = (state) => (state === null ? null : state ? "ON" : "OFF");

export function relayBadge(relay) {
  return relay ? badge(relay, relay === "ON" ? "good" : "") : badge("unknown", "dim");
}

async function register(projects) {
  const [boards, apps] = await Promise.all([get("/catalog/boards"), get("/catalog/apps")]);
  const made = await ask({
    title: "Register a device",
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "boardType", label: "Board", options: boards.map(({ boardType, name }) => [boardType, name]) },
      { name: "appType", label: "What it switches", options: apps.map(({ appType, name }) => [appType, name]), value: "OTHER" },
      { name: "appTypeOther", label: "If other: what", hint: "Only needed with “other”." },
      { name: "projectId", label: "Project", options: projects.map(({ projectId, name }) => [projectId, name]) },
      { name: "location", label: "Location" },
    ],
    action: "Register",
    send: (values) => call("POST", "/devices/register", values),
  });
  if (!made) return;
  tell("Registered. Next, generate its credentials.");
  location.hash = `#/device/${made.deviceId}/setup`;
}
