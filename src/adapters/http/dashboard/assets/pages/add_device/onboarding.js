/* What to put on the device, and whether it has come. */

import { call, get } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { liveDevice, ofDevice, useLoad } from "../../core/live_data_hooks.js";
import { Button, Card, Facts, LinkButton, Loaded, PageHead } from "../../ui/basic_components.js";
import { Problems, useNetwork } from "../network_reachability.js";
import { Arrival } from "./first_connection.js";
import { askForCredentials, forgetCredentials, keptCredentials } from "./new_device_credentials.js";
import { Firmware } from "./firmware.js";

export function Onboarding({ deviceId }) {
  const path = `/devices/${encodeURIComponent(deviceId)}`;
  const [credentials, setCredentials] = useState(() => keptCredentials(deviceId));
  const device = useLoad((signal) => get(path, signal), [path], ofDevice(deviceId, "device_", "credentials_"));
  const network = useNetwork();
  useEffect(() => forgetCredentials, []);
  return html`<${Loaded} of=${device}>${(loaded) => {
    const now = liveDevice(loaded);
    return html`<${PageHead} title=${now.name} sub=${t("Put it online, then switch it")} actions=${html`<${LinkButton} href=${`#/device/${deviceId}`}>${t("Open the device")}<//>`} />
      ${network.data ? html`<${Blocked} network=${network.data} />` : null}
      <div class=${`columns onboarding ${now.isOnline ? "arrived" : ""}`}>
        <div>${credentials ? html`<${Body} device=${now} path=${path} credentials=${credentials} />` : html`<${Locked} device=${now} path=${path} opened=${setCredentials} />`}</div>
        <${Arrival} device=${now} network=${network.data} />
      </div>`;
  }}<//>`;
}

/* Nothing on the device helps while the broker cannot be reached. */
function Blocked({ network }) {
  if (!network.problems.some(({ code }) => code.startsWith("MQTT"))) return null;
  return html`<${Card} actions=${html`<${LinkButton} href="#/network">${t("What to change")}<//>`} title=${t("First: let devices reach this machine")}><${Problems} network=${network} of="MQTT" /><//>`;
}

function Locked({ device, path, opened }) {
  const fresh = device.deviceStatus === "PENDING" || device.deviceStatus === "REVOKED";
  const open = async () => {
    const found = fresh ? await call("POST", `${path}/credentials`) : await askForCredentials(path);
    if (found) opened(found);
  };
  return html`<${Card} title=${t("3. Put this on the device")}>
    <p class="dim">${fresh ? t("It has no credentials yet.") : t("Its firmware contains its password, so your own is needed to show it again.")}</p>
    <${Button} kind="main" icon="key-round" act=${open}>${fresh ? t("Generate credentials") : t("Show it")}<//>
  <//>`;
}

function Body({ device, path, credentials }) {
  const { mqttUsername, mqttPassword, mqttHost, mqttPort, wsPort } = credentials;
  if (device.boardType !== "OTHER") return html`<${Firmware} device=${device} path=${path} credentials=${credentials} />`;
  return html`<${Card} title=${t("3. Put this on the device")}>
    <${Facts} of=${[[t("Host"), html`<code>${mqttHost}</code>`], [t("Port (WebSocket)"), `${mqttPort} (${wsPort})`], [t("User name"), html`<code>${mqttUsername}</code>`], [t("Password"), html`<code>${mqttPassword}</code>`], [t("Topics"), html`<code>${`devices/${mqttUsername}/…`}</code>`]]} />
    <p class="dim">${t("The client id is the user name. The reference of devices says what firmware must do with a command.")}</p>
  <//>`;
}
