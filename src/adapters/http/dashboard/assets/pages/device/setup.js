/* The device's credentials and the configuration for its firmware. */

import { call, get } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { useLoad } from "../../core/live_data_hooks.js";
import { mayEdit } from "../../core/signed_in_user.js";
import { Button, Card, Facts, Loaded } from "../../ui/basic_components.js";
import { confirmed, confirmedByName, reveal } from "../../ui/dialog.js";
import { askForCredentials } from "../add_device/new_device_credentials.js";
import { withStepUp } from "../../ui/step_up.js";

const FORMATS = ["arduino", "micropython", "tasmota", "esphome", "shelly"];

export function Setup({ device, path, reload }) {
  const [format, setFormat] = useState("");
  const config = useLoad((signal) => get(`${path}/config${format ? `?format=${format}` : ""}`, signal), [path, format]);
  const select = html`<select aria-label=${t("Firmware")} value=${format} onChange=${(event) => setFormat(event.currentTarget.value)}><option value="">${t("as its board needs it")}</option>${FORMATS.map((each) => html`<option value=${each}>${each}</option>`)}</select>`;
  const { health } = device;
  return html`
    <${Card} title=${t("Credentials")}>
      <p>${states()[device.deviceStatus] ?? device.deviceStatus}</p>
      <${Facts} of=${[[t("Device id"), html`<code>${device.deviceId}</code>`], [t("Board"), device.boardType], [t("Firmware"), health?.firmware ? `${device.profile} ${health.firmware}` : device.profile], [t("Reconnects"), health?.reconnects], [t("Clock off by"), health?.clockOffsetMs ? `${Math.round(health.clockOffsetMs / 1000)} s` : null], [t("Largest message"), health?.maxPacketSize]]} />
      ${mayEdit() ? html`<div class="actions"><${Credentials} device=${device} path=${path} reload=${reload} /></div>` : null}
    <//>
    <${Card} title=${t("Firmware configuration")} actions=${select}>
      ${mayEdit() ? html`<p><a href=${`#/add/${device.deviceId}`}>${t("The complete firmware, step by step")}</a></p>` : null}
      <${Loaded} of=${config}>${({ note, configBlock }) => html`<p class="dim">${note}</p><pre tabindex="0">${configBlock}</pre>`}<//>
    <//>`;
}

const states = () => ({
  PENDING: t("It has no credentials yet. Generate them and put them into its firmware."),
  ACTIVE: t("It can connect."),
  DISABLED: t("It is disabled and cannot connect until it is enabled again."),
  REVOKED: t("Its credentials are revoked. Generate new ones to let it connect again."),
});

function Credentials({ device: { deviceStatus, name }, path, reload }) {
  const show = (made) => reveal(t("Credentials"), t("Anyone with these credentials can connect as this device. You can show them again with your password."), lines(made));
  const generate = async () => {
    await show(await call("POST", `${path}/credentials`));
    await reload();
  };
  const rotate = async () => {
    const made = await confirmed(t("New credentials?"), t("“{name}” is disconnected until it has the new ones.", { name }), t("Rotate"), () => withStepUp(() => call("POST", `${path}/credentials`, { rotate: true })));
    if (made) await show(made);
  };
  const showAgain = async () => {
    const made = await askForCredentials(path);
    if (made) await show(made);
  };
  const revoke = () => confirmedByName(t("Revoke the credentials?"), t("“{name}” is disconnected at once and cannot connect again.", { name }), name, t("Revoke"), () => call("POST", `${path}/revoke`)).then((done) => done && reload());
  if (deviceStatus === "PENDING" || deviceStatus === "REVOKED") return html`<${Button} kind="main" icon="key-round" act=${generate}>${t("Generate credentials")}<//>`;
  return html`<${Button} act=${showAgain}>${t("Show again")}<//><${Button} act=${rotate}>${t("Rotate")}<//><${Button} kind="danger apart" act=${revoke}>${t("Revoke")}<//>`;
}

const lines = ({ mqttUsername, mqttPassword, mqttHost, mqttPort, wsPort, configBlock }) => [
  [t("User name"), mqttUsername],
  [t("Password"), mqttPassword],
  [t("Host"), mqttHost],
  [t("Port (WebSocket)"), `${mqttPort} (${wsPort})`],
  [t("Firmware configuration"), configBlock],
];
