/* The complete firmware of a device. The service sends it with placeholders; the password and the person's Wi-Fi are put in here, in the browser. */

import { get, saveFile } from "../../core/api.js";
import { html, useState } from "../../core/html.js";
import { t } from "../../core/i18n.js";
import { useLoad } from "../../core/live_data_hooks.js";
import { Button, Card, Choice, Loaded } from "../../ui/basic_components.js";
import { CopyBlock } from "../../ui/copy_button.js";
import { Fields } from "../../ui/form_fields.js";
import { QrOfText } from "../../ui/qr_code.js";

const PINS = { arduino: "26", micropython: "26", esphome: "4" };
const PIN = /(\bRELAY_PIN(?: =)? |\bpin: GPIO)\d+/;

export function Firmware({ device, path, credentials }) {
  const project = useLoad((signal) => get(`${path}/firmware`, signal), [path]);
  return html`<${Loaded} of=${project} lines=${8}>${(loaded) => html`<${Project} device=${device} project=${loaded} credentials=${credentials} />`}<//>`;
}

function Project({ device, project, credentials }) {
  const { format, files, encrypted } = project;
  const [board, setBoard] = useState({ wifiName: "", wifiPassword: "", pin: PINS[format] ?? "" });
  const ready = files.map((file) => ({ ...file, content: filledIn(file.content, project.placeholders, credentials.mqttPassword, board) }));
  const fields = [
    { name: "wifiName", label: t("Wi-Fi name"), hint: t("2.4 GHz") },
    { name: "wifiPassword", label: t("Wi-Fi password"), hint: t("It stays in this browser.") },
    { name: "pin", label: t("Pin of the relay"), type: "integer", min: 0, max: 48 },
  ];
  return html`<${Card} title=${t("3. Put this on the device")}>
    ${format in PINS ? html`<div class="row"><${Fields} fields=${fields} values=${board} prefix="board" onChange=${(name, value) => setBoard((before) => ({ ...before, [name]: value }))} /></div>` : null}
    <${Steps} format=${format} files=${ready} />
    <${Files} files=${ready} format=${format} />
    ${format in PINS && format !== "esphome" && !encrypted ? html`<p class="dim">${t("Its connection is not encrypted: everybody in the network can read its password.")}</p>` : null}
    <p class="dim">${t("Whoever has this is “{name}”: do not publish it.", { name: device.name })}</p>
  <//>`;
}

function filledIn(content, placeholders, password, { wifiName, wifiPassword, pin }) {
  const quoted = (text) => JSON.stringify(text); // a string literal of C, Python and YAML alike
  let text = content.replaceAll(placeholders.mqttPassword, () => password);
  if (wifiName) text = text.replace(quoted(placeholders.wifiName), () => quoted(wifiName));
  if (wifiPassword) text = text.replace(quoted(placeholders.wifiPassword), () => quoted(wifiPassword));
  return /^\d+$/.test(pin) ? text.replace(PIN, (_, before) => before + pin) : text;
}

function Steps({ format, files }) {
  const names = files.map(({ name }) => name).join(" ");
  const command = (text) => html`<${CopyBlock} text=${text} label=${t("Command")} />`;
  const steps = {
    arduino: [t("In the Arduino IDE, install the support for your board (esp32 or esp8266) and the library PubSubClient, 2.8 or newer."), t("Open the sketch, choose board and port, and upload it.")],
    micropython: [t("Download the files, and copy them to the board:"), command(`mpremote cp ${names} : + reset`)],
    esphome: [t("Download the file, and install it on the board:"), command(`esphome run ${names}`)],
    tasmota: [t("On the web page of the relay, open Consoles, then Console, and paste the line. The relay restarts and connects.")],
    shelly: [t("Download the file, and send it to the Shelly, with its address in your network. Then reboot the Shelly:"), command("curl -X POST -d @shelly.json http://192.168.33.1/rpc && curl http://192.168.33.1/rpc/Shelly.Reboot")],
  }[format];
  return html`<ol class="steps">${steps.map((step) => html`<li>${step}</li>`)}</ol>`;
}

function Files({ files, format }) {
  const [chosen, setChosen] = useState(files[0].name);
  const file = files.find(({ name }) => name === chosen) ?? files[0];
  const save = () => files.forEach(saveOne);
  const one = format === "tasmota";
  return html`${files.length > 1 ? html`<${Choice} label=${t("Files")} options=${files.map(({ name }) => [name, name])} value=${file.name} onChange=${setChosen} />` : null}
    ${file.encoding === "TEXT" ? html`<${CopyBlock} text=${file.content} label=${file.name} kind="file">${one ? null : html`<${Button} kind="main" small icon="download" act=${save}>${files.length > 1 ? t("Download all") : t("Download {name}", { name: file.name })}<//>`}<//>` : html`<p class="dim">${t("A file of bytes, for the download.")}</p>`}
    ${one ? html`<div class="reach"><${QrOfText} text=${file.content.trim()} label=${t("QR code of the line")} /><p class="dim grow">${t("Is your phone in the network of the relay? Scan the line with it, and paste it there.")}</p></div>` : null}`;
}

function saveOne({ name, content, encoding }) {
  const bytes = encoding === "BASE64" ? Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0)) : content;
  saveFile(new Blob([bytes]), name);
}
