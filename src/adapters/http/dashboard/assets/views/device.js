/* One device: a header, and one tab at a time. */

import { call, get } from "../api.js";
import { badge, button, fill, h, tell, time } from "../dom.js";
import { ask, confirmed } from "../dialog.js";
import { isAdmin, mayEdit } from "../roles.js";
import { access } from "./access.js";
import { control } from "./control.js";
import { presence, relayBadge, word } from "./devices.js";
import { history } from "./history.js";
import { rules } from "./rules.js";
import { schedules } from "./schedules.js";
import { setup } from "./setup.js";
import { telemetry } from "./telemetry.js";

const TABS = {
  control: ["Switch", control],
  telemetry: ["Telemetry", telemetry],
  schedules: ["Schedules", schedules],
  rules: ["Rules", rules],
  access: ["Access", access],
  history: ["History", history],
  setup: ["Connection", setup],
};

export async function device(room, frame) {
  const [deviceId, tab = "control"] = frame.rest;
  const path = `/devices/${encodeURIComponent(deviceId)}`;
  const { me, fleet, signal } = frame;
  const shown = await get(path, signal);
  const online = h("span", { class: "presence" });
  const relay = h("span");
  const seen = h("span");
  const update = () => {
    const now = fleet.devices.get(deviceId);
    presence(online, now?.isOnline ?? shown.isOnline);
    fill(relay, relayBadge(now ? now.relay : word(shown.relayState)));
    fill(seen, "last seen ", time(now?.lastSeen ?? shown.lastSeen));
  };
  update();
  signal.addEventListener("abort", fleet.watch((changed) => (changed === null || changed === deviceId) && update()));

  const open = Object.entries(TABS).filter(([name]) => name !== "access" || isAdmin(me));
  const links = open.map(([name, [label]]) => h("a", { href: `#/device/${deviceId}/${name}`, "aria-current": name === tab ? "page" : "false" }, label));
  const status = badge(shown.deviceStatus.toLowerCase(), shown.deviceStatus === "ACTIVE" ? "good" : "warn");
  const body = h("div", { class: "tab" });
  fill(
    room,
    h("a", { href: "#/devices", class: "back" }, "‹ Devices"),
    h("header", { class: "head" }, h("div", null, h("h1", null, shown.name), h("p", { class: "line" }, online, relay, status, seen)), actions(shown, path, frame)),
    h("nav", { class: "tabs", "aria-label": "Device sections" }, links),
    body,
  );
  const view = (TABS[tab] ?? TABS.control)[1];
  await view(body, { ...frame, deviceId, path, device: shown });
}

function actions(device, path, { me, again }) {
  if (!mayEdit(me)) return null;
  const off = device.deviceStatus === "DISABLED";
  const toggle = async () => {
    const send = () => call("PATCH", `${path}/toggle`);
    if (off) await send();
    else if (!(await confirmed("Disable this device?", "It is disconnected and accepts no commands until it is enabled again.", "Disable", send))) return;
    await again();
  };
  const canToggle = device.deviceStatus === "ACTIVE" || off;
  return h(
    "div",
    { class: "actions" },
    button("Edit", () => edit(device, path, again)),
    canToggle ? button(off ? "Enable" : "Disable", toggle) : null,
    button("Delete", () => remove(device, path), { kind: "danger" }),
  );
}

async function edit(device, path, again) {
  const projects = await get("/projects");
  const fields = [
    { name: "name", label: "Name", required: true, value: device.name },
    { name: "projectId", label: "Project", options: projects.map(({ projectId, name }) => [projectId, name]), value: device.project.projectId },
    ...["location", "description", "manufacturer", "model"].map((name) => ({ name, label: name[0].toUpperCase() + name.slice(1), value: device[name] ?? "" })),
    { name: "tags", label: "Tags", value: device.tags.join(", "), hint: "Separated by commas." },
  ];
  const emptied = (values) => Object.fromEntries(["location", "description", "manufacturer", "model"].map((name) => [name, values[name] ?? null]));
  const send = (values) => {
    const tags = (values.tags ?? "").split(",").map((tag) => tag.trim()).filter(Boolean);
    return call("PUT", path, { ...values, ...emptied(values), tags });
  };
  if (await ask({ title: "Edit the device", fields, action: "Save", send })) await again();
}

async function remove(device, path) {
  const gone = await ask({
    title: `Delete “${device.name}”?`,
    intro: "Its schedules, rules, grants, telemetry, approvals and credentials are deleted too, and it is disconnected at once. This cannot be undone.",
    fields: [{ name: "name", label: "Type its name", required: true }],
    action: "Delete permanently",
    danger: true,
    send: async ({ name }) => {
      if (name !== device.name) throw new Error(`Its name is “${device.name}”.`);
      return call("DELETE", path);
    },
  });
  if (!gone) return;
  tell("The device has been deleted.");
  location.hash = "#/devices";
}
