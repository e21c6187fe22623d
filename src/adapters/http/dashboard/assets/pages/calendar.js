/* A week of all planned switching, over all devices. The service works the occurrences out, with the clock changes of each slot's zone. */

import { get } from "../core/api.js";
import { labelOf } from "../core/channels.js";
import { clock, dayMonth, dayName, startOfDay, zone } from "../core/format.js";
import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { ofKind, useLoad } from "../core/live_data_hooks.js";
import { place, setQuery } from "../core/router.js";
import { clockChange } from "../core/time_zone_conversion.js";
import { Badge, Button, Card, Empty, LinkButton, Loaded, PageHead } from "../ui/basic_components.js";
import { Icon } from "../ui/icons.js";

const HOUR_MS = 3_600_000;
const MOST_NAMED = 50;

export function Calendar() {
  const week = Number(place.value.query.week ?? 0);
  const days = daysOf(week);
  const [from, until] = [days[0], days[7]];
  const plan = useLoad((signal) => load(from, until, signal), [from, until], ofKind("schedule_", "device_deleted"));
  const move = (by) => setQuery({ week: week + by || "" });
  const shift = clockChange(from, until, zone());
  return html`
    <${PageHead} title=${t("Calendar")} sub=${t("{from} to {until}, times in {zone}", { from: dayMonth(from), until: dayMonth(days[6]), zone: zone() })} actions=${html`
      <${Button} icon="chevron-left" label=${t("Previous week")} act=${() => move(-1)} disabled=${week <= 0} /><${Button} act=${() => setQuery({ week: "" })} disabled=${week === 0}>${t("Today")}<//><${Button} icon="chevron-right" label=${t("Next week")} act=${() => move(1)} />`} />
    ${shift ? html`<p class="hint"><${Icon} name="clock" size=${18} />${shift > 0 ? t("The clocks go forward in these days: one hour is missing.") : t("The clocks go back in these days: one hour comes twice.")}</p>` : null}
    <${Loaded} of=${plan} lines=${8}>${({ occurrences, complete }) => {
      const blocks = blocksOf(occurrences, from, until);
      if (!blocks.length) return html`<${Card}><${Empty} icon="calendar-days" title=${t("Nothing is planned in these days")} action=${html`<${LinkButton} href="#/devices" kind="main">${t("Choose a device")}<//>`}>${t("Slots are planned on the page of a device.")}<//><//>`;
      return html`${complete ? null : html`<p class="hint warn"><${Icon} name="triangle-alert" size=${18} />${t("There are more switches than can be shown.")}</p>`}
        <div class="calendar">${days.slice(0, 7).map((day, index) => html`<${Day} key=${day} day=${day} end=${days[index + 1]} blocks=${blocks} />`)}</div>`;
    }}<//>`;
}

/* With the names of the channels that are switched beside relays. */
async function load(from, until, signal) {
  const plan = await get(`/schedules/occurrences?since=${from}&until=${until}`, signal);
  const ids = [...new Set(plan.occurrences.filter(({ channel }) => channel > 1).map(({ deviceId }) => deviceId))].slice(0, MOST_NAMED);
  const devices = await Promise.all(ids.map((id) => get(`/devices/${id}`, signal).catch(() => null)));
  const channels = new Map(devices.filter(Boolean).map((device) => [device.deviceId, device.channels]));
  for (const each of plan.occurrences) each.on = labelOf(channels.get(each.deviceId) ?? [], each.channel);
  return plan;
}

/* Eight midnights: seven days from today. */
function daysOf(week) {
  const today = new Date(startOfDay(Date.now()));
  return Array.from({ length: 8 }, (_, index) => new Date(today.getFullYear(), today.getMonth(), today.getDate() + 7 * week + index).getTime());
}

/* From edges to stretches: a slot runs from its first switch to its second. Those of one channel that overlap are marked. */
function blocksOf(occurrences, from, until) {
  const slots = Map.groupBy ? Map.groupBy(occurrences, ({ scheduleId }) => scheduleId) : group(occurrences);
  const blocks = [...slots.values()].flatMap((edges) => {
    const found = [];
    let open = null;
    for (const edge of [...edges].sort((one, other) => Date.parse(one.at) - Date.parse(other.at))) {
      const at = Date.parse(edge.at);
      if (edge.edge === "on") {
        if (open) found.push({ ...open, end: at });
        open = { ...edge, start: at, first: edge.command };
      } else {
        found.push({ ...edge, ...open, start: open?.start ?? Math.max(from, Date.now()), end: at, first: open?.first, second: edge.command });
        open = null;
      }
    }
    if (open) found.push({ ...open, end: until });
    return found;
  });
  for (const block of blocks) block.overlaps = blocks.some((other) => other !== block && other.deviceId === block.deviceId && other.channel === block.channel && other.start < block.end && block.start < other.end);
  return blocks.sort((one, other) => one.start - other.start);
}

function group(occurrences) {
  const slots = new Map();
  for (const each of occurrences) slots.set(each.scheduleId, [...(slots.get(each.scheduleId) ?? []), each]);
  return slots;
}

function Day({ day, end, blocks }) {
  const shown = blocks.filter(({ start, end: until }) => start < end && until > day);
  const today = startOfDay(Date.now()) === day;
  const percent = (at) => ((Math.min(Math.max(at, day), end) - day) / (end - day)) * 100;
  return html`<section class=${`day ${today ? "today" : ""}`}>
    <h2>${dayName(day)} <small>${dayMonth(day)}</small></h2>
    <div class="day-line" aria-hidden="true">${[6, 12, 18].map((hour) => html`<i style=${{ left: `${percent(day + hour * HOUR_MS)}%` }} />`)}${shown.map((block) => html`<b class=${block.overlaps ? "overlap" : ""} style=${{ left: `${percent(block.start)}%`, width: `${Math.max(1, percent(block.end) - percent(block.start))}%` }} />`)}</div>
    ${shown.length ? html`<ul>${shown.map((block) => html`<li class=${block.enabled ? "" : "paused"}><a href=${`#/device/${block.deviceId}/schedules`}><span class="times">${clock(Math.max(block.start, day))}–${block.end >= end ? "24:00" : clock(block.end)}</span><strong>${block.deviceName}</strong><small>${[block.on, block.label, block.first && block.first !== "ON" ? block.first : null, block.timezone !== zone() && block.rrule ? block.timezone : null].filter(Boolean).join(" · ")}</small></a>${block.overlaps ? html`<${Badge} kind="warn">${t("overlaps")}<//>` : null}${block.enabled ? null : html`<${Badge} kind="off" icon="pause">${t("paused")}<//>`}</li>`)}</ul>` : html`<p class="dim">–</p>`}
  </section>`;
}
