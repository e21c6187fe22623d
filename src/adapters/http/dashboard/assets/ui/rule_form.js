/* Builds a rule, and tries it on the stored telemetry of the last week before it is saved. */

import { call, get } from "../core/api.js";
import { channelBody, channelOptions, commandOf, commandsFor, hasChannels } from "../core/channels.js";
import { exact, whole } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { n, t } from "../core/i18n.js";
import { loadBuckets } from "../pages/device/telemetry.js";
import { Button, Choice } from "./basic_components.js";
import { Chart } from "./chart.js";
import { ask, DialogForm, openDialog } from "./dialog.js";
import { Field } from "./form_fields.js";
import { Icon } from "./icons.js";
import { COMPARATORS } from "./rule_texts.js";
import { readParams, SchemaFields, startParams } from "./schema_form.js";

const WEEK_MS = 7 * 86_400_000;
const MOST_CONDITIONS = 10;

/* `of`: the device whose metrics, channels and commands can be chosen, and on whose week the rule is tried; another than `path` where
   that is a group. `intro`: who is meant. */
export async function editRule(rule, path, of = path, intro = null) {
  const [context, { channels }] = await Promise.all([get(`${of}/rules/context`), get(of)]);
  if (!context.metrics.length) {
    const named = await nameMetric(of, t("A rule needs a metric, and the device has not reported any yet. Name one that it will report."));
    if (!named) return undefined;
    context.metrics = named.metrics;
  }
  return openDialog(RuleForm, { rule, path, of, intro, channels, ...context }, { wide: true });
}

/* Makes a metric known that the device will report; resolves to `{metrics}`, or to undefined if the person closes it. */
export const nameMetric = (path, intro = t("Rules can use it before the device has reported it. It is not forgotten.")) => ask({
  title: t("Name a metric"),
  intro,
  fields: [{ name: "metric", label: t("Metric"), required: true, maxlength: 64, placeholder: "temperature" }],
  action: t("Add"),
  send: ({ metric }) => call("POST", `${path}/metrics`, { metrics: [metric] }),
});

/* Input that looks like a number is a number; everything else is text. */
const typed = (text) => (String(text).trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : String(text));

function RuleForm({ rule, path, of, intro, channels, metrics, commands, done }) {
  const firstChannel = String(rule?.action.channel ?? channelOptions(channels)[0]?.[0] ?? 1);
  const blank = () => ({ metric: metrics[0], comparator: ">", value: "" });
  const editable = (conditions) => conditions.map((each) => ({ ...each, was: each.value }));
  const [values, setValues] = useState(() => ({ name: rule?.name ?? "", match: rule?.match ?? "ALL", conditions: editable(rule?.conditions ?? [blank()]), clearConditions: editable(rule?.clearConditions ?? []), forSeconds: rule?.forSeconds ?? 0, cooldownSeconds: rule?.cooldownSeconds ?? 0, priority: rule?.priority ?? 100, channel: firstChannel, command: rule?.action.command ?? commandOf(commands, firstChannel) }));
  const [params, setParams] = useState(() => startParams(commandsFor(commands, values.channel), values.command, rule?.action.params));
  const [faults, setFaults] = useState({});
  const [trial, setTrial] = useState(null);
  const put = (changes) => setValues((before) => ({ ...before, ...changes }));
  const offered = commandsFor(commands, values.channel);
  const schema = offered.find(({ name }) => name === values.command)?.paramsSchema;
  const order = (channel, command) => {
    put({ channel, command });
    if (command !== values.command) setParams(startParams(commandsFor(commands, channel), command, null));
  };
  const conditions = (list) => list.map(({ metric, comparator, value, was }) => ({ metric, comparator, value: String(value) === String(was) && was !== undefined ? was : typed(value) }));
  const test = () => ({ match: values.match, conditions: conditions(values.conditions), clearConditions: conditions(values.clearConditions), forSeconds: Number(values.forSeconds), cooldownSeconds: Number(values.cooldownSeconds) });
  const mark = (details) => {
    setFaults(Object.fromEntries(details.map(({ field, message }) => [field, message])));
    return details.filter(({ field }) => !/^(name|conditions|clearConditions|forSeconds|cooldownSeconds|priority|action)/.test(field));
  };
  const send = () => {
    const given = schema && params ? readParams(schema, params) : undefined;
    const body = { name: values.name, priority: Number(values.priority), ...test(), action: { command: values.command, ...channelBody(values.channel), ...(given === undefined ? {} : { params: given }) } };
    return rule ? call("PATCH", `${path}/rules/${rule.ruleId}`, body) : call("POST", `${path}/rules`, body);
  };
  const tryIt = async () => {
    setFaults({});
    const range = [Date.now() - WEEK_MS, Date.now()];
    const body = test();
    const answer = await call("POST", `${of}/rules/test`, { ...body, from: Math.floor(range[0]), to: Math.floor(range[1]) });
    const numeric = [...new Set(body.conditions.filter(({ value, comparator }) => typeof value === "number" && comparator !== "silent").map(({ metric }) => metric))];
    const buckets = await Promise.all(numeric.map((metric) => loadBuckets(of, metric, range)));
    setTrial({ answer, range, body, charts: numeric.map((metric, index) => [metric, buckets[index]]) });
  };
  const field = (name, label, rest) => html`<${Field} id=${`rule-${name}`} name=${name} label=${label} value=${values[name]} fault=${faults[name]} onChange=${(value) => put({ [name]: value })} ...${rest} />`;
  return html`<${DialogForm} title=${rule ? t("Edit the rule") : t("New rule")} action=${t("Save")} intro=${intro} done=${done} mark=${mark} send=${send}>
    ${field("name", t("Name"), { required: true })}
    <fieldset class="group"><legend>${t("When")}</legend>
      ${values.conditions.length > 1 ? html`<${Choice} label=${t("How many must hold")} options=${[["ALL", t("all hold")], ["ANY", t("any holds")]]} value=${values.match} onChange=${(match) => put({ match })} />` : null}
      <${Conditions} name="conditions" label=${t("Condition")} list=${values.conditions} least=${1} metrics=${metrics} faults=${faults} onChange=${(list) => put({ conditions: list })} blank=${blank} />
    </fieldset>
    <fieldset class="group"><legend>${t("Then")}</legend>
      ${hasChannels({ channels }) ? html`<${Field} id="rule-channel" name="channel" label=${t("Channel")} options=${channelOptions(channels)} value=${values.channel} fault=${faults["action.channel"]} onChange=${(channel) => order(channel, commandOf(commands, channel, values.command))} />` : null}
      <${Field} id="rule-command" name="command" label=${t("Command")} options=${offered.map(({ name, label }) => [name, `${label} (${name})`])} value=${values.command} fault=${faults["action.command"]} onChange=${(command) => order(values.channel, command)} />
      ${schema && params ? html`<${SchemaFields} schema=${schema} values=${params} onChange=${setParams} faults=${Object.fromEntries(Object.entries(faults).map(([name, text]) => [name.replace(/^action\./, ""), text]))} />` : null}
    </fieldset>
    <details class="group" open=${Boolean(rule && (rule.forSeconds || rule.cooldownSeconds || rule.clearConditions.length))}><summary>${t("Timing and priority")}</summary>
      <div class="row">${field("forSeconds", t("Must hold for (seconds)"), { type: "integer", min: 0 })}${field("cooldownSeconds", t("Not again within (seconds)"), { type: "integer", min: 0 })}${field("priority", t("Priority"), { type: "integer", hint: t("The lower number goes first.") })}</div>
      <p class="dim">${t("It holds until these are true too, so that a value that swings around the limit does not switch each time:")}</p>
      <${Conditions} name="clearConditions" label=${t("Until condition")} list=${values.clearConditions} least=${0} metrics=${metrics} faults=${faults} onChange=${(list) => put({ clearConditions: list })} blank=${blank} />
    </details>
    <div class="trial"><${Button} icon="chart-line" act=${tryIt}>${t("Try it on the last week")}<//><span class="dim">${t("Switches nothing.")}</span></div>
    ${trial ? html`<${Trial} ...${trial} />` : null}
  <//>`;
}

function Conditions({ name, label, list, least, metrics, faults, onChange, blank }) {
  const put = (index, changes) => onChange(list.map((each, at) => (at === index ? { ...each, ...changes } : each)));
  return html`${list.map((condition, index) => html`<div class="condition" role="group" aria-label=${`${label} ${index + 1}`}>
      <select aria-label=${t("Metric")} value=${condition.metric} onChange=${(event) => put(index, { metric: event.currentTarget.value })}>${[...new Set([...metrics, condition.metric])].map((metric) => html`<option value=${metric} selected=${metric === condition.metric}>${metric}</option>`)}</select>
      <select aria-label=${t("Comparison")} value=${condition.comparator} onChange=${(event) => put(index, { comparator: event.currentTarget.value })}>${COMPARATORS().map(([each, text]) => html`<option value=${each} selected=${each === condition.comparator}>${text}</option>`)}</select>
      <input aria-label=${t("Value")} required value=${condition.value} aria-invalid=${faults[`${name}.${index}.value`] ? "true" : null} onInput=${(event) => put(index, { value: event.currentTarget.value })} />
      <${Button} kind="quiet" icon="x" label=${t("Remove the condition")} disabled=${list.length <= least} act=${() => onChange(list.filter((_, at) => at !== index))} />
      ${Object.entries(faults).filter(([field]) => field.startsWith(`${name}.${index}`)).map(([, text]) => html`<small class="bad">${text}</small>`)}
    </div>`)}
    <${Button} small icon="plus" disabled=${list.length >= MOST_CONDITIONS} act=${() => onChange([...list, blank()])}>${least ? t("Add a condition") : t("Add an until condition")}<//>`;
}

function Trial({ answer: { firedAt, messages, complete }, range, body, charts }) {
  const marks = firedAt.map((at) => ({ at: Date.parse(at), kind: "fired", label: t("would fire, {when}", { when: exact(at) }) }));
  const limits = (metric) => [...body.conditions, ...body.clearConditions].filter((each) => each.metric === metric && typeof each.value === "number").map(({ value }) => value);
  return html`<section class="trial-result" aria-label=${t("The last week")}>
    <p class=${`line ${firedAt.length ? "" : "dim"}`} role="status"><${Icon} name=${firedAt.length ? "zap" : "info"} size=${18} /><strong>${firedAt.length ? n("It would have fired {count} time.", "It would have fired {count} times.", firedAt.length) : t("It would not have fired.")}</strong> <span class="dim">${t("{count} messages read", { count: whole(messages) })}</span></p>
    ${complete ? null : html`<p class="hint warn"><${Icon} name="triangle-alert" size=${18} />${t("The week has more than can be tried; the end is left out.")}</p>`}
    ${charts.map(([metric, buckets]) => html`<${Chart} key=${metric} title=${metric} buckets=${buckets} marks=${marks} range=${range} group="trial" limits=${limits(metric)} />`)}
  </section>`;
}
