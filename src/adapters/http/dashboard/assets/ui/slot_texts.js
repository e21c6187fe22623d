/* The times of a slot in words, and the recurrence rules that the form can show. */

import { labelOf, orderText } from "../core/channels.js";
import { clock, dayMonth, weekdays, zone } from "../core/format.js";
import { t } from "../core/i18n.js";
import { localIn } from "../core/time_zone_conversion.js";

const DAY_CODES = ["SU", "MO", "TU", "WE", "TH", "FR", "SA"];

/* {repeat: "once" | "daily" | "days" | "other", days: [0–6]} of a slot. */
export function repeatOf({ rrule, onTs, timezone }) {
  if (!rrule) return { repeat: "once", days: [] };
  if (rrule === "FREQ=DAILY") return { repeat: "daily", days: [] };
  const days = /^FREQ=WEEKLY(?:;BYDAY=([A-Z,]+))?$/.exec(rrule);
  if (!days) return { repeat: "other", days: [] };
  const first = new Date(`${localIn(onTs * 1000, timezone)}Z`).getUTCDay();
  return { repeat: "days", days: days[1] ? days[1].split(",").map((code) => DAY_CODES.indexOf(code)) : [first] };
}

export function rruleOf({ repeat, days }) {
  if (repeat === "daily") return "FREQ=DAILY";
  return repeat === "days" ? `FREQ=WEEKLY;BYDAY=${[...days].sort().map((day) => DAY_CODES[day]).join(",")}` : null;
}

export function repeatText(slot) {
  const { repeat, days } = repeatOf(slot);
  const names = weekdays();
  const other = slot.timezone !== zone() && slot.rrule ? ` (${slot.timezone})` : "";
  if (repeat === "once") return t("once, on {day}", { day: dayMonth(slot.onTs * 1000) });
  if (repeat === "daily") return t("every day") + other;
  if (repeat === "other") return slot.rrule + other;
  return days.map((day) => names[day]).join(" ") + other;
}

/* `channels`: those of the device, by whose names the commands are told. */
export function timesText({ onTs, offTs, rrule, timezone, onCommand, offCommand }, channels = []) {
  const shown = rrule ? timezone : undefined;
  const name = labelOf(channels, onCommand.channel);
  if (onCommand.channel === offCommand.channel) return [name, `${clock(onTs * 1000, shown)} ${onCommand.command} – ${clock(offTs * 1000, shown)} ${offCommand.command}`].filter(Boolean).join(": ");
  return `${clock(onTs * 1000, shown)} ${orderText(onCommand, channels)} – ${clock(offTs * 1000, shown)} ${orderText(offCommand, channels)}`;
}
