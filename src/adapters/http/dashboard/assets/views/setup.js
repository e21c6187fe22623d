/* How the device gets in: its credentials, and what to paste into its firmware. */

import { call, get } from "../api.js";
import { button, fill, h, section } from "../dom.js";
import { ask, confirmed, reveal } from "../dialog.js";
import { mayEdit } from "../roles.js";

const FORMATS = ["arduino", "micropython", "tasmota", "esphome", "shelly"];

export async function setup(room, { me, path, device, signal, again }) {
  const block = h("pre");
  const note = h("p", { class: "dim" });
  const format = h("select", { "aria-label": "Firmware" }, h("option", { value: "" }, "as its board needs"), FORMATS.map((each) => h("option", { value: each }, each)));
  const draw = async () => {
    const shown = await get(`${path}/config${format.value ? `?format=${format.value}` : ""}`, signal);
    fill(block, shown.configBlock);
    fill(note, shown.note);
  };
  format.addEventListener("change", draw);
  const facts = h("p", { class: "dim" }, h("code", null, device.deviceId), ` · ${device.boardType} · ${device.profile} firmware`);
  const editing = mayEdit(me) ? credentials(device, path, again) : null;
  fill(room, section("Credentials", [editing], facts, states(device)), section("For its firmware", [format], note, block));
  await draw();
}

function states({ deviceStatus }) {
  const said = {
    PENDING: "It has no credentials yet: generate some, and put them into its firmware.",
    ACTIVE: "It may connect.",
    DISABLED: "It is disabled: it may not connect until it is enabled again.",
    REVOKED: "Its credentials are revoked. New ones let it in again.",
  };
  return h("p", null, said[deviceStatus] ?? deviceStatus);
}

function credentials({ deviceStatus, name }, path, again) {
  const show = (made) => reveal("Credentials", "Who has these is this device. They can be shown again with your password.", lines(made));
  const generate = async () => {
    await show(await call("POST", `${path}/credentials`));
    await again();
  };
  const rotate = async () => {
    const made = await confirmed("New credentials?", `“${name}” is cut off until it has the new ones.`, "Make new ones", () => call("POST", `${path}/credentials`, { rotate: true }));
    if (made) await show(made);
  };
  const showAgain = async () => {
    const made = await ask({
      title: "Show the credentials",
      intro: "This is noted in the device’s history.",
      fields: [{ name: "password", label: "Your password", type: "password", required: true }],
      action: "Show",
      send: (values) => call("POST", `${path}/credentials/reveal`, values),
    });
    if (made) await show(made);
  };
  const revoke = () => confirmed("Revoke the credentials?", `“${name}” is cut off at once and refused from then on.`, "Revoke", () => call("POST", `${path}/revoke`)).then((done) => done && again());
  if (deviceStatus === "PENDING" || deviceStatus === "REVOKED") return button("Generate credentials", generate, { kind: "main" });
  return [button("Show again", showAgain), button("Make new ones", rotate), button("Revoke", revoke, { kind: "danger" })];
}

const lines = ({ mqttUsername, mqttPassword, mqttHost, mqttPort, wsPort, configBlock }) => [
  ["User name", mqttUsername],
  ["Password", mqttPassword],
  ["Host", mqttHost],
  ["Port (WebSocket)", `${mqttPort} (${wsPort})`],
  ["For its firmware", configBlock],
];
