/* What is done to all members of a group: each decides on its own, and the report says what became of each. */

import { call } from "../../core/api.js";
import { channelLabel, hasChannels, labelOf } from "../../core/channels.js";
import { html } from "../../core/html.js";
import { errorText, n, t, word } from "../../core/i18n.js";
import { Badge, Button, Card } from "../../ui/basic_components.js";
import { ask } from "../../ui/dialog.js";
import { editRule } from "../../ui/rule_form.js";
import { editSlot } from "../../ui/slot_form.js";

const KINDS = { DONE: "good", QUEUED: "good", PENDING: "wait", REFUSED: "bad" };
const SHOWN = 5;

/* The one with the most channels: what can be chosen is what it has. */
export const richest = (devices, members) => devices.map(({ deviceId }) => members.find((each) => each.deviceId === deviceId)).filter(Boolean).reduce((best, each) => (best && best.channels.length >= each.channels.length ? best : each), null) ?? devices[0];

/* `members`: the devices with their channels. */
export function GroupActions({ group: { name, devices }, members, path, show }) {
  const example = richest(devices, members);
  const of = `/devices/${example.deviceId}`;
  const reported = (title) => (report) => report && show({ title, report });
  const meant = n("For {count} device: {names}.", "For {count} devices: {names}.", devices.length, { names: nameSome(devices) });
  const plan = async () => {
    const chosen = await askSlot(t("Plan a slot of “{name}”", { name }), `${meant} ${t("What the slot of a device holds now is replaced.")}`, t("Next"), Number);
    if (chosen != null) await editSlot(chosen, null, path, of, meant).then(reported(t("Slot {number} of “{name}”", { number: chosen, name })));
  };
  const cancel = () => askSlot(t("Cancel a slot of “{name}”?", { name }), `${meant} ${t("It switches nothing any more, not even off. It stays in the history.")}`, t("Cancel the slot"), (number) => call("DELETE", `${path}/schedules/${number}`), true).then(reported(t("Cancelled at “{name}”", { name })));
  const rule = () => editRule(null, path, of, `${meant} ${t("It is tried on {name}.", { name: example.name })}`).then(reported(t("New rule for “{name}”", { name })));
  return html`<${Card} title=${t("For all of them")}>
    <p class="dim">${t("Each device gets a copy of its own. A device that joins later gets none.")}</p>
    <div class="actions start"><${Button} kind="main" icon="send" act=${() => send(path, name, members).then((done) => done && show(done))}>${t("Send a command")}<//>
      <${Button} icon="calendar-clock" act=${plan}>${t("Plan a slot")}<//><${Button} act=${cancel}>${t("Cancel a slot")}<//><${Button} icon="activity" act=${rule}>${t("New rule")}<//></div>
  <//>`;
}

const askSlot = (title, intro, action, send, danger = false) => ask({ title, intro, action, danger, fields: [{ name: "number", label: t("Slot"), options: [0, 1, 2, 3, 4].map((each) => [each, String(each)]) }], send: ({ number }) => send(number) });

function nameSome(devices) {
  const names = devices.slice(0, SHOWN).map(({ name }) => name).join(", ");
  return devices.length > SHOWN ? t("{names} and {count} more", { names, count: devices.length - SHOWN }) : names;
}

/* First who is meant and what would come of it, then the command itself. */
async function send(path, name, members) {
  const several = members.some(hasChannels);
  const previewed = await ask({
    title: t("A command to “{name}”", { name }),
    fields: [{ name: "cmd", label: t("Command"), value: "ON", required: true }, ...(several ? [{ name: "target", label: t("on the channel"), options: targets(members) }] : []), { name: "reason", label: t("Reason") }],
    action: t("Preview"),
    send: async ({ target, ...values }) => {
      const command = { ...values, ...(target ? JSON.parse(target) : {}) };
      return { command, preview: await call("POST", `${path}/command/preview`, command) };
    },
  });
  if (!previewed) return null;
  const { command, preview } = previewed;
  const report = await ask({
    title: t("Send {cmd} to “{name}”?", { cmd: command.cmd, name }),
    intro: summary(preview),
    action: n("Send to {count} device", "Send to {count} devices", preview.queued + preview.waiting),
    send: () => call("POST", `${path}/command`, command),
  });
  return report ? { title: t("{cmd} to “{name}”", { cmd: command.cmd, name }), report, members } : null;
}

const EVERY = () => ({ RELAY: t("every relay"), LEVEL: t("every channel with a level"), COLOR: t("every coloured light"), COVER: t("every cover"), CLIMATE: t("every heating or cooling") });

/* What of each device is meant: a channel by its number, all of a kind, or all of a name. */
function targets(members) {
  const all = members.flatMap(({ channels }) => channels).filter(({ kind }) => kind !== "INPUT");
  const [kinds, names, numbers] = [all.map(({ kind }) => kind), all.map(({ name }) => name), all.map(({ channel }) => channel)].map((each) => [...new Set(each)]);
  const labels = (number) => channelLabel({ ...all.find(({ channel }) => channel === number), name: [...new Set(all.filter(({ channel }) => channel === number).map(({ name }) => name))].join(" / ") });
  return [
    ...numbers.sort((one, other) => one - other).map((channel) => [JSON.stringify({ channel }), labels(channel)]),
    ...kinds.map((channelKind) => [JSON.stringify({ channelKind }), EVERY()[channelKind]]),
    ...names.map((channelName) => [JSON.stringify({ channelName }), t("every channel named “{name}”", { name: channelName })]),
  ];
}

function summary({ queued, waiting, refused, devices }) {
  const counts = [[queued, t("{count} would be sent", { count: queued })], [waiting, t("{count} would wait for approval", { count: waiting })], [refused, t("{count} would be refused", { count: refused })]];
  const reasons = devices.filter(({ error }) => error).slice(0, SHOWN).map((each) => `${each.name}: ${errorText({ code: each.error, message: each.message })}`);
  return [counts.filter(([count]) => count).map(([, text]) => text).join(", "), ...reasons].join(" · ");
}

/* A command to all channels of a kind or name has an outcome for each channel. */
export function GroupActionReport({ title, report: { devices }, members = [] }) {
  const onChannel = ({ deviceId, channel = 1 }) => labelOf(members.find((each) => each.deviceId === deviceId)?.channels ?? [], channel);
  return html`<${Card} title=${title}><ul class="lines" aria-label=${t("Outcome of each device")}>${devices.map((each) => html`<li class="entry" key=${`${each.deviceId} ${each.channel}`}><div class="grow"><a href=${`#/device/${each.deviceId}`}>${each.name}</a>${onChannel(each) ? ` · ${onChannel(each)}` : ""}${each.error ? html` <small>${errorText({ code: each.error, message: each.message })}</small>` : null}</div><${Badge} kind=${KINDS[each.outcome]}>${word(`GROUP_${each.outcome}`)}<//></li>`)}</ul><//>`;
}
