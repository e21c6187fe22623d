/* The commands of a device beside its switch, its latest values, and what was sent to it. */

import { call, get } from "../../core/api.js";
import { channelBody, channelOptions, commandsFor, hasChannels, labelOf, labelsOf } from "../../core/channels.js";
import { KINDS, lifeText, reasonOf, useCommand } from "../../core/send_command.js";
import { plainParams, reading } from "../../core/format.js";
import { html, useState } from "../../core/html.js";
import { t, word } from "../../core/i18n.js";
import { ofDevice, useLoad } from "../../core/live_data_hooks.js";
import { getCursorPage, useRows } from "../../core/live_rows.js";
import { mayEdit } from "../../core/signed_in_user.js";
import { Badge, Button, Card, Empty, Loaded, More, Time } from "../../ui/basic_components.js";
import { ask, confirmed, DialogForm, openDialog } from "../../ui/dialog.js";
import { Field } from "../../ui/form_fields.js";
import { paramFaults, readParams, SchemaFields, startValues } from "../../ui/schema_form.js";
import { Life } from "../../ui/device_switch.js";

const SWITCHED = new Set(["ON", "OFF"]);
const MOVED = new Set(["OPEN", "CLOSE", "STOP"]);

/* What the switch of the device, or the row of a channel, does. */
const isInReach = ({ name, commandId }) => SWITCHED.has(name) || (MOVED.has(name) && commandId === null);

export function Control({ device, path }) {
  const definitions = useLoad((signal) => get(`${path}/commands`, signal), [path], ofDevice(device.deviceId, "command_defined", "command_updated", "command_removed"));
  const add = mayEdit() ? html`<${Button} icon="plus" act=${() => define(device, path, definitions.reload)}>${t("Define a command")}<//>` : null;
  return html`<div class="columns">
    <div>
      <${Card} title=${t("Commands")} actions=${add}>
        <${Loaded} of=${definitions}>${(all) => html`<${Commands} device=${device} path=${path} all=${all} reload=${definitions.reload} />`}<//>
      <//>
      <${Values} device=${device} path=${path} />
    </div>
    <${Executions} device=${device} path=${path} />
  </div>`;
}

function Commands({ device, path, all, reload }) {
  const command = useCommand(device);
  const shown = all.filter((each) => !isInReach(each) || each.requiresApproval || (each.commandId && each.description));
  return html`<ul class="lines">${shown.map((definition) => html`<${Command} key=${`${definition.name} ${definition.channels}`} definition=${definition} device=${device} path=${path} send=${command[1]} reload=${reload} />`)}</ul>
    <${Life} device=${device} life=${command[0]} />`;
}

function Command({ definition, device, path, send, reload }) {
  const { name, label, description, kind, requiresApproval, commandId, paramsSchema, channels } = definition;
  const onlyOn = hasChannels(device) && channels.length ? labelsOf(device.channels, channels) : null;
  const choices = channelOptions(device.channels).filter(([number]) => commandsFor([definition], number).length);
  const asks = paramsSchema || (hasChannels(device) && choices.length > 1 && kind !== "QUERY");
  const own = commandId !== null && mayEdit();
  const change = (changes) => call("PATCH", `${path}/commands/${commandId}`, changes).then(reload);
  const gone = () => confirmed(t("Remove {name}?", { name }), t("Rules and schedules that use it are then skipped."), t("Remove"), () => call("DELETE", `${path}/commands/${commandId}`)).then((done) => done && reload());
  const run = () => (asks ? openDialog(Parameters, { definition, send, choices: hasChannels(device) && kind !== "QUERY" ? choices : [] }) : send({ cmd: name, ...channelBody(channels[0] ?? 1) }));
  return html`<li class="command">
    <div class="grow"><strong>${commandId ? label : t(label)}</strong><small>${[name, kind === "QUERY" ? t("asks only") : null, commandId ? description : t(description ?? ""), onlyOn].filter(Boolean).join(" · ")}</small>
      ${requiresApproval ? html`<${Badge} kind="warn" icon="shield-check">${t("needs approval")}<//>` : null}</div>
    ${own ? html`<${Button} kind="quiet" small act=${() => change({ requiresApproval: !requiresApproval })}>${requiresApproval ? t("Run without approval") : t("Require approval")}<//><${Button} kind="quiet danger" icon="trash" label=${t("Remove {name}", { name })} act=${gone} />` : null}
    <${Button} icon=${asks ? "list-checks" : "send"} disabled=${device.deviceStatus !== "ACTIVE"} act=${run} aria-label=${[t("Send {name}", { name: label }), onlyOn].filter(Boolean).join(", ")}>${t("Send")}<//>
  </li>`;
}

/* What was typed stays when the service refuses it. `choices`: the channels that it can be sent to. */
function Parameters({ definition, send, choices, done }) {
  const schema = definition.paramsSchema;
  const [values, setValues] = useState(() => (schema ? startValues(schema) : {}));
  const [channel, setChannel] = useState(choices[0]?.[0] ?? 1);
  const [faults, setFaults] = useState({});
  const [reason, setReason] = useState("");
  const mark = (details) => {
    const found = paramFaults(details);
    setFaults(found);
    return details.filter(({ field }) => !(field in found) || field === "params");
  };
  const submit = () => {
    const params = schema ? readParams(schema, values) : undefined;
    return send({ cmd: definition.name, ...channelBody(channel), ...(params === undefined ? {} : { params }), ...(reason ? { reason } : {}) }, { strict: true });
  };
  return html`<${DialogForm} title=${definition.label} intro=${definition.description} action=${t("Send")} done=${done} mark=${mark} send=${submit}>
    ${choices.length ? html`<${Field} id="channel" label=${t("Channel")} options=${choices} value=${channel} onChange=${setChannel} />` : null}
    ${schema ? html`<${SchemaFields} schema=${schema} values=${values} onChange=${setValues} faults=${faults} />` : null}
    ${definition.requiresApproval ? html`<div class="field"><label for="reason">${t("Reason")}</label><input id="reason" maxlength="280" value=${reason} onInput=${(event) => setReason(event.currentTarget.value)} /><small>${t("Shown to the person who approves it")}</small></div>` : null}
  <//>`;
}

function Values({ device, path }) {
  const latest = useLoad((signal) => get(`${path}/telemetry/latest`, signal), [path, device.lastSeen]);
  return html`<${Card} title=${t("Latest values")} actions=${html`<a href=${`#/device/${device.deviceId}/telemetry`}>${t("Charts")}</a>`}>
    <${Loaded} of=${latest}>${({ telemetry }) => telemetry.length ? html`<div class="tiles">${telemetry.map((each) => html`<div class="tile" key=${each.metric}><small>${each.metric}</small><strong>${reading(each)}</strong><small><${Time} at=${each.recordedAt} /></small></div>`)}</div>` : html`<${Empty} icon="activity" title=${t("The device has reported no values yet")} />`}<//>
  <//>`;
}

function Executions({ device, path }) {
  const rows = useRows(`${path}/executions?limit=20`, "executionId", getCursorPage);
  const page = useLoad((signal) => rows.load(signal), [path], ofDevice(device.deviceId, "command_"));
  const waits = page.data?.data?.some(({ status }) => status === "QUEUED") && mayEdit();
  const callOff = () => confirmed(t("Call off all that waits?"), t("What was sent already cannot be called off."), t("Call off"), () => call("POST", `${path}/executions/cancel`)).then((done) => done && page.reload());
  const all = waits ? html`<${Button} kind="quiet danger" act=${callOff}>${t("Call off all that waits")}<//>` : null;
  return html`<${Card} title=${t("Sent to the device")} actions=${all}>
    <${Loaded} of=${page}>${(shown) => shown.data.length ? html`
      <ul class="lines">${shown.data.map((each) => html`<${Execution} key=${each.executionId} of=${each} device=${device} path=${path} reload=${page.reload} />`)}</ul>
      <${More} next=${shown.next} load=${() => rows.more(shown, page.reload)} />` : html`<${Empty} icon="send" title=${t("Nothing was sent yet")} />`}<//>
  <//>`;
}

function Execution({ of: { executionId, cmd, params, channel, status, source, result, createdAt, expiresAt, approvalId }, device, path, reload }) {
  const left = Math.max(0, Math.ceil((Date.parse(expiresAt) - Date.now()) / 1000));
  const answer = Object.entries(result?.data ?? {}).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  const callOff = () => call("POST", `${path}/executions/${executionId}/cancel`).finally(reload);
  return html`<li class="execution">
    <${Badge} kind=${KINDS[status] ?? "off"}>${word(status)}<//>
    <div class="grow"><strong>${cmd}</strong> ${[labelOf(device.channels, channel), plainParams(params)].filter(Boolean).join(" · ")}
      <small>${[t("by {who}", { who: word(source) }), approvalId ? t("approved") : null, status === "DONE" ? null : lifeText(status, device.isOnline, left), reasonOf(result), answer].filter(Boolean).join(" · ")}</small></div>
    ${status === "QUEUED" ? html`<${Button} kind="quiet" small act=${callOff} aria-label=${t("Call off {name}", { name: cmd })}>${t("Call off")}<//>` : null}
    <small><${Time} at=${createdAt} /></small>
  </li>`;
}

async function define(device, path, reload) {
  const parse = (text) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw Object.assign(new Error(error.message), { details: [{ field: "paramsSchema", message: error.message }] });
    }
  };
  const made = await ask({
    title: t("Define a command"),
    intro: t("A definition with the name of a built-in command (such as ON) takes its place on this device, for example to require approval."),
    fields: [
      { name: "name", label: t("Name"), required: true, placeholder: "FLUSH", hint: t("Capital letters, digits and _; sent to the firmware unchanged") },
      { name: "label", label: t("Label"), required: true },
      { name: "description", label: t("What it does") },
      { name: "kind", label: t("Kind"), options: [["ACTION", t("It does something")], ["QUERY", t("It asks only")]] },
      ...(hasChannels(device) ? [{ name: "channels", label: t("Channels (none: all)"), type: "many", options: channelOptions(device.channels) }] : []),
      { name: "paramsSchema", label: t("Parameters (JSON Schema)"), type: "textarea", placeholder: '{"type": "object", "properties": {"seconds": {"type": "integer"}}}' },
      { name: "requiresApproval", label: t("Requires approval"), type: "checkbox" },
    ],
    action: t("Define"),
    send: ({ channels = [], ...values }) => call("POST", `${path}/commands`, { ...values, ...(channels.length ? { channels: channels.map(Number) } : {}), ...(values.paramsSchema ? { paramsSchema: parse(values.paramsSchema) } : {}) }),
  });
  if (made) await reload();
}
