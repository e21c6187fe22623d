/* Has the device come? Then its first switch. */

import { isSwitched } from "../../core/channels.js";
import { now } from "../../core/format.js";
import { html, useState } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { Card, LinkButton } from "../../ui/basic_components.js";
import { Icon } from "../../ui/icons.js";
import { QrOfText } from "../../ui/qr_code.js";
import { Life, Switch, useCommand } from "../../ui/device_switch.js";
import { phoneUrl } from "../network_reachability.js";

const PATIENCE_MS = 90_000;

export function Arrival({ device, network }) {
  const command = useCommand(device);
  // Where channel 1 is no switch, the device's page has its controls.
  const isSwitch = isSwitched(device.channels[0]);
  const done = command[0]?.kind === "good" || (device.isOnline && !isSwitch);
  const [since] = useState(Date.now);
  return html`<${Card} title=${t("4. Switch it")}>
    <ol class="progress" aria-live="polite">
      <${Stage} state=${device.isOnline ? "done" : "now"} text=${device.isOnline ? t("Connected") : t("Waiting for the device…")} />
      ${isSwitch ? html`<${Stage} state=${done ? "done" : device.isOnline ? "now" : "later"} text=${done ? t("It works: the device confirmed the command") : t("Press On")} />` : null}
    </ol>
    ${device.isOnline ? isSwitch && html`<div class="hero-switch"><${Switch} device=${device} command=${command} large /><${Life} device=${device} life=${command[0]} /></div>` : now.value - since > PATIENCE_MS ? html`<${Late} />` : null}
    ${done ? html`<${Next} device=${device} network=${network} />` : null}
  <//>`;
}

const MARKS = { done: "circle-check", now: "loader-circle", later: "circle" };

const Stage = ({ state, text }) => html`<li class=${state}><${Icon} name=${MARKS[state]} size=${22} spin=${state === "now"} /><span>${text}</span></li>`;

const Late = () => html`<div class="hint"><${Icon} name="info" size=${18} /><div><p>${t("Nothing yet? Look at these:")}</p><ul class="bullets">
  <li>${t("Wi-Fi: name and password, and a network with 2.4 GHz.")}</li>
  <li>${t("Address: the device must reach the host above; a firewall may be in between.")}</li>
  <li>${t("State 4 or 5 on the serial monitor: the firmware has an old password.")}</li>
</ul></div></div>`;

function Next({ device, network }) {
  const url = network && phoneUrl(network);
  return html`${url ? html`<div class="reach"><${QrOfText} text=${`${url}/#/device/${device.deviceId}`} label=${t("QR code of this device’s page")} /><p class="grow">${t("Scan it to switch “{name}” from your phone.", { name: device.name })}</p></div>` : null}
    <div class="actions"><${LinkButton} kind="main" href=${`#/device/${device.deviceId}`}>${t("Open the device")}<//><${LinkButton} href="#/add" icon="plus">${t("Add another")}<//></div>`;
}
