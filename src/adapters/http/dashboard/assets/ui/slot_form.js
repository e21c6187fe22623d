/* Plans or changes a slot. Times are clock times of the slot's zone. */

import { call, get } from "../core/api.js";
import { channelBody, channelOptions, commandOf, commandsFor, hasChannels, labelOf } from "../core/channels.js";
import { zone } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { t } from "../core/i18n.js";
import { clockChange, isZone, localIn, toMs } from "../core/time_zone_conversion.js";
import { DialogForm, openDialog } from "./dialog.js";
import { Fields } from "./form_fields.js";
import { Icon } from "./icons.js";
import { readParams, SchemaFields, startParams } from "./schema_form.js";
import { repeatOf, rruleOf } from "./slot_texts.js";

const DAY_MS = 86_400_000;
const YEAR_MS = 365 * DAY_MS;
const EDGES = ["on", "off"];

/* What a slot does first and then, on a channel that has it. */
const WANTED = { on: ["ON", "OPEN"], off: ["OFF", "CLOSE"] };

/* `of`: the device whose channels and commands can be chosen; another than `path` where that is a group. `intro`: who is meant. */
export async function editSlot(slot, old, path, of = path, intro = null) {
  const [{ commands }, { channels }] = await Promise.all([get(`${of}/schedules/context`), get(of)]);
  return openDialog(SlotForm, { slot, old, path, commands, channels, intro });
}

function initial(old, commands, channels) {
  const first = channelOptions(channels)[0]?.[0] ?? "1";
  const [onChannel, offChannel] = [String(old?.onCommand.channel ?? first), String(old?.offCommand.channel ?? first)];
  const timezone = old?.rrule ? old.timezone : zone();
  const start = old ? localIn(old.onTs * 1000, timezone) : localIn(Math.ceil(Date.now() / 3_600_000) * 3_600_000, timezone);
  const end = old ? localIn(old.offTs * 1000, timezone) : localIn(Math.ceil(Date.now() / 3_600_000) * 3_600_000 + 3_600_000, timezone);
  const { repeat, days } = old ? repeatOf(old) : { repeat: "once", days: [] };
  return { label: old?.label ?? "", repeat, days, start: start.slice(0, 10), onTime: start.slice(11), offTime: end.slice(11), on: start, off: end, timezone, misfire: old?.misfire ?? "FIRE", onChannel, offChannel, onCommand: old?.onCommand.command ?? commandOf(commands, onChannel, null, WANTED.on), offCommand: old?.offCommand.command ?? commandOf(commands, offChannel, null, WANTED.off) };
}

function SlotForm({ slot, old, path, commands, channels, intro, done }) {
  const first = useState(() => initial(old, commands, channels))[0];
  const [values, setValues] = useState(first);
  const [params, setParams] = useState(() => Object.fromEntries(EDGES.map((edge) => [edge, startParams(commandsFor(commands, first[`${edge}Channel`]), old?.[`${edge}Command`].command, old?.[`${edge}Command`].params)])));
  const [faults, setFaults] = useState({});
  const ofEdge = (edge, given = values) => commandsFor(commands, given[`${edge}Channel`]);
  /* The second switch goes with the first to another channel. A command that the channel lacks gives way to one that it has. */
  const put = (name, value) => {
    const next = { ...values, [name]: value };
    if (name === "onChannel" && values.offChannel === values.onChannel) next.offChannel = value;
    const fresh = {};
    for (const edge of EDGES) {
      if (next[`${edge}Channel`] !== values[`${edge}Channel`]) next[`${edge}Command`] = commandOf(commands, next[`${edge}Channel`], next[`${edge}Command`], WANTED[edge]);
      if (next[`${edge}Command`] !== values[`${edge}Command`]) fresh[edge] = startParams(ofEdge(edge, next), next[`${edge}Command`], null);
    }
    setValues(next);
    setParams((before) => ({ ...before, ...fresh }));
  };
  const mark = (details) => {
    setFaults(Object.fromEntries(details.map(({ field, message }) => [place(field, values.repeat), message])));
    return details.filter(({ field }) => !/^(onTs|offTs|rrule|timezone|label|misfire|onCommand|offCommand)/.test(field));
  };
  const send = () => {
    const body = changes(old, first, values, params, ofEdge);
    return old ? call("PUT", `${path}/schedules/${slot}`, body) : call("POST", `${path}/schedules`, { slot, ...body });
  };
  const schemaOf = (edge) => ofEdge(edge).find(({ name }) => name === values[`${edge}Command`])?.paramsSchema;
  const edgeParams = (edge) => (schemaOf(edge) && params[edge] ? html`<fieldset class="group"><legend>${t("Parameters of {command}", { command: values[`${edge}Command`] })}</legend><${SchemaFields} schema=${schemaOf(edge)} values=${params[edge]} onChange=${(next) => setParams((before) => ({ ...before, [edge]: next }))} /></fieldset>` : null);
  return html`<${DialogForm} title=${old ? t("Edit slot {number}", { number: slot }) : t("Plan slot {number}", { number: slot })} action=${t("Save")} intro=${intro} done=${done} mark=${mark} send=${send}>
    <${Fields} fields=${fieldsOf(values, ofEdge, channels, old)} values=${values} faults=${faults} onChange=${put} />
    ${edgeParams("on")}${edgeParams("off")}
    <${ClockNote} values=${values} />
  <//>`;
}

const place = (field, repeat) => ({ onTs: repeat === "once" || repeat === "other" ? "on" : "onTime", offTs: repeat === "once" || repeat === "other" ? "off" : "offTime", rrule: "repeat" })[field] ?? field.split(".")[0];

function fieldsOf({ repeat, onChannel, offChannel }, ofEdge, channels, old) {
  const choices = (edge) => {
    const found = ofEdge(edge).map(({ name, label }) => [name, `${label} (${name})`]);
    const order = old?.[`${edge}Command`];
    return order && !found.some(([name]) => name === order.command) ? [...found, [order.command, order.command]] : found;
  };
  const onChannels = (name, number) => {
    const found = channelOptions(channels);
    const options = found.some(([each]) => each === number) ? found : [...found, [number, labelOf(channels, Number(number))]];
    return hasChannels({ channels }) || number !== "1" ? [{ name, label: t("on the channel"), options }] : [];
  };
  const dated = repeat === "once" || repeat === "other";
  return [
    { name: "label", label: t("Label"), maxlength: 64 },
    { name: "repeat", label: t("Repeat"), options: [["once", t("once")], ["daily", t("every day")], ["days", t("on days of the week")], ...(old && repeatOf(old).repeat === "other" ? [["other", old.rrule]] : [])] },
    { name: "days", label: t("Days"), type: "days", when: () => repeat === "days" },
    { name: "start", label: t("From the day"), type: "date", when: () => !dated },
    { name: dated ? "on" : "onTime", label: t("First switch"), type: dated ? "datetime-local" : "time", required: true },
    ...onChannels("onChannel", onChannel),
    { name: "onCommand", label: t("does"), options: choices("on") },
    { name: dated ? "off" : "offTime", label: t("Second switch"), type: dated ? "datetime-local" : "time", required: true, hint: dated ? null : t("Earlier than the first: on the next day") },
    ...onChannels("offChannel", offChannel),
    { name: "offCommand", label: t("does"), options: choices("off") },
    { name: "timezone", label: t("Time zone"), required: true },
    { name: "misfire", label: t("If it is missed"), options: [["FIRE", t("switch late, within the grace period")], ["SKIP", t("skip it")]] },
  ];
}

/* Only what was changed is sent, so that what the form does not show (seconds, grace period) is kept. */
function changes(old, first, values, params, ofEdge) {
  const body = {};
  const differs = (...names) => !old || names.some((name) => JSON.stringify(values[name]) !== JSON.stringify(first[name]));
  if (differs("label")) body.label = values.label;
  if (differs("misfire")) body.misfire = values.misfire;
  for (const edge of EDGES) {
    const name = `${edge}Command`;
    const channel = Number(values[`${edge}Channel`]);
    const schema = ofEdge(edge).find((each) => each.name === values[name])?.paramsSchema;
    const given = schema && params[edge] ? (readParams(schema, params[edge]) ?? null) : null;
    const before = old?.[name];
    const same = before?.command === values[name] && before.channel === channel && (!schema || JSON.stringify(given) === JSON.stringify(before.params ?? null));
    if (!old || !same) body[name] = { command: values[name], ...channelBody(channel), ...(schema ? { params: given } : {}) };
  }
  if (differs("repeat", "days", "start", "onTime", "offTime", "on", "off", "timezone")) Object.assign(body, times(values));
  return body;
}

function times({ repeat, days, start, onTime, offTime, on, off, timezone }) {
  if (!isZone(timezone)) throw Object.assign(new Error(t("“{name}” is no time zone. Use a name such as Europe/Berlin.", { name: timezone })), { details: [] });
  if (repeat === "once") return { onTs: toMs(on, timezone) / 1000, offTs: toMs(off, timezone) / 1000, rrule: null };
  if (repeat === "other") return { onTs: toMs(on, timezone) / 1000, offTs: toMs(off, timezone) / 1000, timezone };
  if (repeat === "days" && !days.length) throw Object.assign(new Error(t("Choose at least one day.")), { details: [] });
  let day = Date.parse(`${start}T00:00Z`);
  const fits = () => toMs(`${iso(day)}T${onTime}`, timezone) > Date.now() && (repeat === "daily" || days.includes(new Date(day).getUTCDay()));
  for (let tries = 0; tries < 4_000 && !fits(); tries += 1) day += DAY_MS;
  const end = offTime > onTime ? day : day + DAY_MS;
  return { onTs: toMs(`${iso(day)}T${onTime}`, timezone) / 1000, offTs: toMs(`${iso(end)}T${offTime}`, timezone) / 1000, rrule: rruleOf({ repeat, days }), timezone };
}

const iso = (ms) => new Date(ms).toISOString().slice(0, 10);

/* The clock time is kept when the clocks change; what that means is said before it happens. */
function ClockNote({ values: { repeat, timezone } }) {
  if (repeat === "once" || !isZone(timezone) || !clockChange(Date.now(), Date.now() + YEAR_MS / 2, timezone)) return null;
  return html`<p class="hint"><${Icon} name="clock" size=${18} />${t("The clock time stays when the clocks change. A time that is skipped runs right after the gap, a repeated one only once.")}</p>`;
}
