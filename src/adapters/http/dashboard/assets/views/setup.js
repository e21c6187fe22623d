/* The device's credentials and the configuration for its firmware. */

import { call, get } from "../api.js";
import { button, fill, h, section } from "../dom.js";
import { ask, confirmed, reveal } from "../dialog.js";
import { mayEdit } from "../roles.js";

const FORMATS = ["arduino", "micropython", "tasmota", "esphome", "shelly"];

export async function setup(room, { me, path, device, signal, again }) {
  const block = h("pre");
  const note = h("p", { class: "dim" });
  const format = h("select", { "aria-label": "Firmware" }, h("option", { value: "" }, "default for its board"), FORMATS.map((each) => h("option", { value: each }, each)));
  const draw = async () => {
    const shown = await get(`${path}/config${format.value ? `?format=${format.value}` : ""}`, signal);
    fill(block, shown.configBlock);
    fill(note, shown.note);
  };
  format.addEventListener("change", draw);
  const facts = h("p", { class: "dim" }, h("code", null, device.deviceId), ` · ${device.boardType} · ${device.profile} firmware`);
  const editing = mayEdit(me) ? credentials(device, path, again) : null;
  fill(room, section("Credentials", [editing], facts, states(device)), section("Firmware configuration", [format], note, block));
  await draw();
}

function states({ deviceStatus }) {
  const said = {
    PENDING: "It has no credentials yet. Generate them and put them into its firmware.",
    ACTIVE: "It can connect.",
    DISABLED: "It is disabled and cannot connect until it is enabled again.",
    REVOKED: "Its credentials are revoked. Generate new ones to let it connect again.",
  };
  return h("p", null, said[deviceStatus] ?? deviceStatus);
}

function credentials({ deviceStatus, name }, path, again) {
  const show = (made) => reveal("Credentials", "Anyone with these credentials can connect as this device. You can show them again with your password.", lines(made));
  const generate = async () => {
    await show(await call("POST", `${path}/credentials`));
    await again();
  };
  const rotate = async () => {
    const made = await confirmed("New credentials?", `“${name}” is disconnected until it has the new ones.`, "Rotate", () => call("POST", `${path}/credentials`, { rotate: true }));
    if (made) await show(made);
  };
  const showAgain = async () => {
    const made = await ask({
      title: "Show the credentials",
      intro: "This is recorded in the device’s history.",
      fields: [{ name: "password", label: "Your password", type: "password", required: true }],
      action: "Show",
      send: (values) => call("POST", `${path}/credentials/reveal`, values),
    });
    if (made) await show(made);
  };
  const revoke = () => confirmed("Revoke the credentials?", `“${name}” is disconnected at once and cannot connect again.`, "Revoke", () => call("POST", `${path}/revoke`)).then((done) => done && again());
  if (deviceStatus === "PENDING" || deviceStatus === "REVOKED") return button("Generate credentials", generate, { kind: "main" });
  return [button("Show again", showAgain), button("Rotate", rotate), button("Revoke", revoke, { kind: "danger" })];
}

const lines = ({ mqttUsername, mqttPassword, mqttHost, mqttPort, wsPort, configBlock }) => [
  ["User name", mqttUsername],
  ["Password", mqttPassword],
  ["Host", mqttHost],
  ["Port (WebSocket)", `${mqttPort} (${wsPort})`],
  ["Firmware configuration", configBlock],
];
