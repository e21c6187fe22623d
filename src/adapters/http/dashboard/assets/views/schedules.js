/* The five slots. Times are entered in the browser's time zone and sent as Unix seconds. */

import { call, get } from "../api.js";
import { badge, button, fill, h, localInput, row, section, table, time } from "../dom.js";
import { ask, confirmed } from "../dialog.js";
import { mayEdit } from "../roles.js";

const SLOTS = [0, 1, 2, 3, 4];
const REPEATS = [["", "once"], ["FREQ=DAILY", "every day"], ["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "Monday to Friday"], ["FREQ=WEEKLY;BYDAY=SA,SU", "Saturday and Sunday"], ["FREQ=WEEKLY", "every week"]];

export async function schedules(room, { me, path, signal, again }) {
  const [slots, past] = await Promise.all([get(`${path}/schedules`, signal), get(`${path}/schedules/history`, signal)]);
  const used = new Map(slots.map((slot) => [slot.slot, slot]));
  const rows = SLOTS.map((number) => line(number, used.get(number), { me, path, again }));
  const over = past.slice(0, 20).map((each) => row(each.slot, each.label, badge(each.status.toLowerCase(), "dim"), outcome(each), time(each.lastFiredAt)));
  fill(
    room,
    section("Slots", [], table(["Slot", "", "On", "Off", "Next", "Last", "On the device", ""], rows, "")),
    section("History", [], table(["Slot", "", "State", "Last", "When"], over, "No slot has ended yet.")),
  );
}

function line(number, slot, { me, path, again }) {
  const fillIn = mayEdit(me) ? button(slot ? "Edit" : "Add", () => save(number, slot, path, again)) : null;
  if (!slot) return row(number, h("span", { class: "dim" }, "free"), "", "", "", "", "", fillIn);
  const cancel = () => confirmed(`Cancel slot ${number}?`, "It stays in the history.", "Cancel the slot", () => call("DELETE", `${path}/schedules/${number}`)).then((done) => done && again());
  const pause = () => call("PUT", `${path}/schedules/${number}`, { enabled: !slot.enabled }).then(again);
  const editing = mayEdit(me) ? [button(slot.enabled ? "Pause" : "Resume", pause), fillIn, button("Cancel", cancel, { kind: "danger" })] : null;
  const name = [slot.label, " ", badge(slot.enabled ? slot.status.toLowerCase() : "paused", slot.enabled ? "good" : "warn"), slot.rrule ? h("small", null, `${slot.rrule} ${slot.timezone}`) : null];
  const edge = (order, ts) => [order.command, " ", time(ts * 1000)];
  return row(number, name, edge(slot.onCommand, slot.onTs), edge(slot.offCommand, slot.offTs), time(slot.nextFireAt, "–"), outcome(slot), slot.firmwareSynced ? badge("yes", "good") : badge("no", "dim"), h("div", { class: "switches" }, editing));
}

function outcome({ lastOutcome }) {
  if (!lastOutcome) return h("span", { class: "dim" }, "–");
  const kind = { FIRED: "good", RAN_ON_DEVICE: "good", FIRED_LATE: "warn", LEFT_TO_DEVICE: "warn" }[lastOutcome] ?? "bad";
  return badge(lastOutcome.toLowerCase().replaceAll("_", " "), kind);
}

async function save(slot, old, path, again) {
  const { commands } = await get(`${path}/schedules/context`);
  const choices = commands.map(({ name, label }) => [name, label]);
  const start = old ? new Date(old.onTs * 1000) : new Date(Date.now() + 600_000);
  const end = old ? new Date(old.offTs * 1000) : new Date(Date.now() + 1_200_000);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const repeats = old?.rrule && !REPEATS.some(([rule]) => rule === old.rrule) ? [...REPEATS, [old.rrule, old.rrule]] : REPEATS;
  const made = await ask({
    title: `Slot ${slot}`,
    intro: `Times are in ${zone}.`,
    fields: [
      { name: "label", label: "Label", value: old?.label ?? "" },
      { name: "on", label: "On at", type: "datetime-local", required: true, value: localInput(start) },
      { name: "onCommand", label: "runs", options: choices, value: old?.onCommand.command ?? "ON" },
      { name: "off", label: "Off at", type: "datetime-local", required: true, value: localInput(end) },
      { name: "offCommand", label: "runs", options: choices, value: old?.offCommand.command ?? "OFF" },
      { name: "rrule", label: "Repeat", options: repeats, value: old?.rrule ?? "" },
      { name: "misfire", label: "If the edge is missed", options: [["FIRE", "run it late, within the grace period"], ["SKIP", "skip it"]], value: old?.misfire ?? "FIRE" },
    ],
    action: "Save",
    send: (values) => (old ? call("PUT", `${path}/schedules/${slot}`, changed(old, values, zone)) : call("POST", `${path}/schedules`, { slot, ...filled(values, zone) })),
  });
  if (made) await again();
}

function filled({ on, off, onCommand, offCommand, ...values }, zone) {
  const orders = { onCommand: { command: onCommand }, offCommand: { command: offCommand } };
  return { ...values, ...orders, onTs: seconds(on), offTs: seconds(off), ...(values.rrule ? { timezone: zone } : {}) };
}

/* Sends only changed fields, so that values which the form does not show (seconds, parameters, time zone, grace period) are kept. */
function changed(old, { on, off, onCommand, offCommand, label = "", rrule = null, misfire }, zone) {
  const changes = {};
  if (on !== localInput(new Date(old.onTs * 1000))) changes.onTs = seconds(on);
  if (off !== localInput(new Date(old.offTs * 1000))) changes.offTs = seconds(off);
  if (onCommand !== old.onCommand.command) changes.onCommand = { command: onCommand };
  if (offCommand !== old.offCommand.command) changes.offCommand = { command: offCommand };
  if (label !== old.label) changes.label = label;
  if (rrule !== old.rrule) changes.rrule = rrule;
  if (rrule && !old.rrule) changes.timezone = zone;
  if (misfire !== old.misfire) changes.misfire = misfire;
  return changes;
}

const seconds = (local) => Math.floor(new Date(local).getTime() / 1000);
