/* Devices from a CSV file: checked here, registered by the service in requests of 200, and given back with their credentials and lines. */

import { call, get, saveFile } from "../../core/api.js";
import { csvBlob, parseCsv } from "../../core/csv.js";
import { html, useState } from "../../core/html.js";
import { errorText, n, serviceText, t, word } from "../../core/i18n.js";
import { useLoad } from "../../core/live_data_hooks.js";
import { mayEdit } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded } from "../../ui/basic_components.js";
import { Fields, initialValues } from "../../ui/form_fields.js";
import { Icon } from "../../ui/icons.js";
import { withStepUp } from "../../ui/step_up.js";

const AT_ONCE = 200;
const SHOWN = 5;
const TEXTS = ["name", "externalId", "boardType", "appType", "appTypeOther", "profile", "location", "description", "manufacturer", "model", "industry"];
const COLUMNS = [...TEXTS, "project", "deviceType", "tags"];
const KINDS = { CREATED: "good", EXISTS: "info", FAILED: "bad" };

export function BulkRegistration() {
  const known = useLoad((signal) => Promise.all(["/projects", "/device-types", "/catalog/boards", "/catalog/apps"].map((path) => get(path, signal))), []);
  if (!mayEdit()) return html`<${Card}><${Empty} icon="lock" title=${t("Viewers register no devices")} /><//>`;
  return html`<${Loaded} of=${known}>${(lists) => html`<${Steps} lists=${lists} />`}<//>`;
}

function Steps({ lists: [projects, types, boards, apps] }) {
  const [file, setFile] = useState(null);
  const [result, setResult] = useState(null);
  const fields = [
    { name: "boardType", label: t("Board"), value: "TASMOTA", options: boards.map(({ boardType, name }) => [boardType, t(name)]) },
    { name: "appType", label: t("What it switches"), value: "RELAY", options: apps.map(({ appType, name }) => [appType, t(name)]) },
    { name: "projectId", label: t("Project"), options: projects.map(({ projectId, name }) => [projectId, name]) },
    { name: "renew", type: "checkbox", label: t("New passwords for devices that never connected"), hint: t("For a file that you send again because its passwords were lost. Lines that you have already given out no longer work then.") },
  ];
  const [values, setValues] = useState(() => initialValues(fields));
  const read = async (event) => {
    const field = event.currentTarget;
    const [chosen] = field.files;
    setResult(null);
    setFile(chosen ? { name: chosen.name, ...checked(parseCsv(await chosen.text()), projects, types) } : null);
    field.value = ""; // a corrected file of the same name is a change again
  };
  const template = () => saveFile(csvBlob([[...COLUMNS, "address"], ["Hall lamp 1", "SN-0001", "TASMOTA", "LIGHT", "", "", "Hall 3", "", "", "", "", projects[0]?.name ?? "", "", "hall|lamp", "192.168.1.51"]]), "latchboard-devices.csv");
  const send = async () => setResult(await registerAll(file.rows, values, setResult));
  return html`<${Card} title=${t("1. A file")} actions=${html`<${Button} icon="download" act=${template}>${t("A file to begin with")}<//>`}>
      <p class="dim">${t("A table as CSV, with a name for each device. Its externalId is your own id of the device, such as a serial number; without one, its name counts. A file may be sent again: devices that are already there stay as they are.")}</p>
      <div class="field"><label for="bulk-file">${t("CSV file")}</label><input id="bulk-file" type="file" accept=".csv,.tsv,.txt,text/csv" onChange=${read} /></div>
      ${file ? html`<${Preview} file=${file} />` : null}
    <//>
    ${file && file.rows.length && !file.faults.length ? html`<${Card} title=${t("2. What the file does not say")}>
        <${Fields} fields=${fields} values=${values} prefix="bulk" onChange=${(name, value) => setValues((before) => ({ ...before, [name]: value }))} />
        <${Button} kind=${result ? "" : "main"} icon="plus" act=${send}>${n("Register {count} device", "Register {count} devices", file.rows.length)}<//>
      <//>` : null}
    ${result ? html`<${Result} result=${result} columns=${file.columns} />` : null}`;
}

/* The file with each row as the service takes it, and what is wrong with it. */
function checked({ columns, rows }, projects, types) {
  const faults = [];
  const seen = new Map();
  const idOf = (list, key, name, line) => {
    const found = list.find((each) => each.name === name || each[key] === name);
    if (!found) faults.push(t("Line {line}: there is no “{name}” in this account.", { line, name }));
    return found?.[key];
  };
  const devices = rows.map(({ line, cells }) => {
    const device = Object.fromEntries(TEXTS.filter((name) => cells[name]).map((name) => [name, cells[name]]));
    if (!device.name) faults.push(t("Line {line}: the name is missing.", { line }));
    device.externalId ??= device.name;
    if (seen.has(device.externalId)) faults.push(t("Lines {first} and {line} have the same externalId or name.", { first: seen.get(device.externalId), line }));
    seen.set(device.externalId, line);
    if (cells.project) device.projectId = idOf(projects, "projectId", cells.project, line);
    if (cells.deviceType) device.deviceTypeId = idOf(types, "deviceTypeId", cells.deviceType, line);
    if (cells.tags) device.tags = cells.tags.split("|").map((tag) => tag.trim()).filter(Boolean);
    return { line, cells, device };
  });
  if (!columns.includes("name")) faults.splice(0, faults.length, t("The first line has no column “name”."));
  return { columns, rows: devices, faults, unused: columns.filter((name) => name && !COLUMNS.includes(name)) };
}

function Preview({ file: { name, rows, faults, unused } }) {
  if (faults.length) return html`<div class="problem" role="alert"><span>${faults.slice(0, SHOWN).map((text) => html`<span class="block">${text}</span>`)}${faults.length > SHOWN ? n("and {count} more", "and {count} more", faults.length - SHOWN) : null}</span></div>`;
  if (!rows.length) return html`<div class="problem" role="alert"><span>${t("The file has no devices.")}</span></div>`;
  return html`<p role="status">${name}: ${n("{count} device", "{count} devices", rows.length)} · ${rows.slice(0, SHOWN).map(({ device }) => device.name).join(", ")}${rows.length > SHOWN ? " …" : ""}</p>
    ${unused.length ? html`<p class="hint"><${Icon} name="info" size=${18} /><span>${t("Kept in the files that you get, not stored with the devices: {names}", { names: unused.join(", ") })}</span></p>` : null}`;
}

/* In requests of 200. An error ends it; what was done until then is shown, and the same file may be sent again. */
async function registerAll(rows, { renew, ...defaults }, show) {
  const done = [];
  for (let start = 0; start < rows.length; start += AT_ONCE) {
    const part = rows.slice(start, start + AT_ONCE);
    show({ done, total: rows.length, error: null });
    try {
      const { devices } = await withStepUp(() => call("POST", "/devices/register/bulk", { devices: part.map(({ device }) => ({ ...defaults, ...device })), credentials: renew ? "UNUSED" : "NEW" }));
      done.push(...devices.map((outcome, index) => ({ ...part[index], outcome })));
    } catch (error) {
      const named = error.details?.length ? error.details.slice(0, SHOWN).map(({ field, message }) => faultOf(field, message, part)) : [errorText(error)];
      return { done, total: rows.length, error: named };
    }
  }
  return { done, total: rows.length, error: null };
}

function faultOf(field, message, part) {
  const [, index, name] = /^devices\.(\d+)\.?(.*)$/.exec(field) ?? [];
  return index === undefined ? `${field}: ${message}` : `${t("Line {line}", { line: part[Number(index)].line })}, ${name}: ${message}`;
}

function Result({ result: { done, total, error }, columns }) {
  const counts = Object.keys(KINDS).map((outcome) => [outcome, done.filter((each) => each.outcome.outcome === outcome).length]).filter(([, count]) => count);
  const failed = done.filter(({ outcome }) => outcome.outcome === "FAILED");
  const lined = done.filter(({ outcome }) => outcome.credentials);
  return html`<${Card} title=${t("3. The result")}>
    <p role="status">${t("{count} of {total}", { count: done.length, total })} ${counts.map(([outcome, count]) => html`<${Badge} kind=${KINDS[outcome]}>${count} ${word(`BULK_${outcome}`)}<//> `)}</p>
    ${error ? html`<div class="problem" role="alert"><span>${error.map((text) => html`<span class="block">${text}</span>`)}<span class="block">${t("Correct the file and send it again: what is done stays done.")}</span></span></div>` : null}
    ${failed.length ? html`<ul class="lines">${failed.slice(0, SHOWN).map(({ line, outcome }) => html`<li>${t("Line {line}", { line })}, ${outcome.name}: ${serviceText(outcome.message)}</li>`)}</ul>` : null}
    ${lined.length ? html`<p class="hint warn"><${Icon} name="key-round" size=${18} /><span>${t("The passwords are in these files only, and only now. Download them before you leave this page, and delete them when the devices have them.")}</span></p>` : null}
    <div class="actions">${lined.length ? html`<${Button} kind="main" icon="download" act=${() => saveLines(lined)}>${t("Download the lines for the devices")}<//>` : null}
      ${done.length ? html`<${Button} icon="download" act=${() => saveTable(done, columns)}>${t("Download the table")}<//>` : null}</div>
  <//>`;
}

/* One line per device, as the tutorial's script reads it: address (or name), id, the firmware's line. Firmware that takes several lines gets blocks. */
function saveLines(lined) {
  const single = lined.every(({ outcome }) => !outcome.credentials.configBlock.trim().includes("\n"));
  const text = lined.map(({ cells, outcome }) => (single ? [cells.address || outcome.name, outcome.deviceId, outcome.credentials.configBlock.trim()].join("\t") : `===== ${outcome.name} · ${outcome.deviceId}\n${outcome.credentials.configBlock}`)).join("\n");
  saveFile(new Blob([`${text}\n`], { type: "text/plain" }), single ? "latchboard-lines.tsv" : "latchboard-blocks.txt");
}

function saveTable(done, columns) {
  const own = [...columns.filter(Boolean)];
  const rows = done.map(({ cells, outcome }) => [...own.map((name) => cells[name]), outcome.outcome, outcome.deviceId, outcome.credentials?.mqttUsername, outcome.credentials?.mqttPassword, outcome.credentials?.mqttHost, outcome.credentials?.mqttPort, outcome.message]);
  saveFile(csvBlob([[...own, "outcome", "deviceId", "mqttUsername", "mqttPassword", "mqttHost", "mqttPort", "message"], ...rows]), "latchboard-result.csv");
}
