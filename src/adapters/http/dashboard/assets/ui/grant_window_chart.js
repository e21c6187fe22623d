/* A picture of a week: days as rows, the hours from left to right. */

import { weekdays } from "../core/format.js";
import { html } from "../core/html.js";
import { n } from "../core/i18n.js";

const DAY = 1440;
const MONDAY_FIRST = [1, 2, 3, 4, 5, 6, 0];

/* The minutes of each day (0 = Sunday) in which a grant is active. A window past midnight belongs to the day it starts on. */
export function activeSpans({ activeDays = [], activeFromMinute: from, activeToMinute: to }) {
  const spans = Array.from({ length: 7 }, () => []);
  for (const day of activeDays.length ? activeDays : [0, 1, 2, 3, 4, 5, 6]) {
    if (from === null || from === undefined || from === "") spans[day].push([0, DAY]);
    else if (from <= to) spans[day].push([from, to + 1]);
    else {
      spans[day].push([from, DAY]);
      spans[(day + 1) % 7].push([0, to + 1]);
    }
  }
  return spans;
}

/* spans: per day (0 = Sunday) a list of [from, to) in minutes. */
export function WeekPicture({ spans, label }) {
  const names = weekdays();
  const hours = Math.round(spans.flat().reduce((sum, [from, to]) => sum + to - from, 0) / 60);
  return html`<figure class="week" role="img" aria-label=${`${label}: ${n("{count} hour a week", "{count} hours a week", hours)}`}>
    ${MONDAY_FIRST.map((day) => html`<span class="week-day">${names[day]}</span><svg viewBox=${`0 0 ${DAY} 10`} preserveAspectRatio="none" class="week-row">${[0, 360, 720, 1080].map((at) => html`<line x1=${at} x2=${at} y1="0" y2="10" />`)}${spans[day].map(([from, to]) => html`<rect x=${from} y="1" width=${to - from} height="8" />`)}</svg>`)}
    <span></span><span class="week-hours"><small>0</small><small>6</small><small>12</small><small>18</small><small>24</small></span>
  </figure>`;
}

