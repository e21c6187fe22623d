/* Times and numbers in the person's language. */

import { signal } from "./html.js";
import { locale, t, word } from "./i18n.js";

/* The present time in ms, renewed each second: a component that reads it is drawn again. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 1_000);

const made = new Map();
const formatter = (kind, options) => {
  const key = `${locale()}${kind}${JSON.stringify(options)}`;
  if (!made.has(key)) made.set(key, new Intl[kind](locale(), options));
  return made.get(key);
};

const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];

/* `moment`: ISO text or ms. */
export const ms = (moment) => (typeof moment === "number" ? moment : Date.parse(moment));

export function ago(moment, at = now.value) {
  const seconds = (ms(moment) - at) / 1000;
  if (Math.abs(seconds) < 5) return t("just now");
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? ["second", 1];
  return formatter("RelativeTimeFormat", { numeric: "auto", style: "short" }).format(Math.trunc(seconds / size), unit);
}

export const exact = (moment) => formatter("DateTimeFormat", { dateStyle: "medium", timeStyle: "medium" }).format(ms(moment));
export const clock = (moment, timeZone) => formatter("DateTimeFormat", { hour: "2-digit", minute: "2-digit", timeZone }).format(ms(moment));
export const dayName = (moment, style = "short") => formatter("DateTimeFormat", { weekday: style }).format(ms(moment));
export const dayMonth = (moment) => formatter("DateTimeFormat", { day: "numeric", month: "short" }).format(ms(moment));
/* Names of the week's days from Sunday (0); 4 January 1970 was a Sunday. */
export const weekdays = (style = "short") => [0, 1, 2, 3, 4, 5, 6].map((day) => formatter("DateTimeFormat", { weekday: style, timeZone: "UTC" }).format((3 + day) * 86_400_000));

/* A near moment: "today, 18:00", "Tue, 18:00", "3 Dec, 18:00". */
export function near(moment) {
  const at = ms(moment);
  const days = Math.round((startOfDay(at) - startOfDay(Date.now())) / 86_400_000);
  if (Math.abs(days) <= 1) return `${formatter("RelativeTimeFormat", { numeric: "auto" }).format(days, "day")}, ${clock(at)}`;
  return `${Math.abs(days) < 7 ? dayName(at) : dayMonth(at)}, ${clock(at)}`;
}

export function startOfDay(moment) {
  const date = new Date(moment);
  date.setHours(0, 0, 0, 0);
  return date.getTime();
}

export const number = (value, digits = 5) => formatter("NumberFormat", { maximumSignificantDigits: digits }).format(value);
export const whole = (value) => formatter("NumberFormat", {}).format(value);

const SYMBOLS = { celsius: "°C", fahrenheit: "°F", percent: "%", volt: "V", volts: "V", ampere: "A", amperes: "A", watt: "W", watts: "W", dbm: "dBm", hectopascal: "hPa" };
const unitSymbol = (unit) => (unit ? (SYMBOLS[unit.toLowerCase()] ?? unit) : "");

/* A reading as text: `21.4 °C`, `eco`. */
export function reading({ value, valueText, unit }) {
  if (value === null || value === undefined) return valueText ?? "–";
  return [number(value), unitSymbol(unit)].filter(Boolean).join(" ");
}

export function seconds(count) {
  const [unit, size] = UNITS.find(([, each]) => count >= each && count % each === 0) ?? ["second", 1];
  return formatter("NumberFormat", { style: "unit", unit, unitDisplay: "long" }).format(count / size);
}

/* Minutes of the day as `HH:MM`, and back; none is "" and null. */
export const minuteClock = (minute) => (minute === null || minute === undefined ? "" : `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`);
export const minuteOf = (text) => (text ? Number(text.slice(0, 2)) * 60 + Number(text.slice(3, 5)) : null);

/* For `datetime-local`, in the browser's time zone. */
export const localInput = (moment) => new Date(ms(moment) - new Date(ms(moment)).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/* The parameters of a command as text: `seconds 30, mode eco`. */
export function plainParams(params) {
  if (params === null || params === undefined) return "";
  if (typeof params !== "object" || Array.isArray(params)) return JSON.stringify(params);
  return Object.entries(params).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : typeof value === "boolean" ? word(value ? "ON" : "OFF") : value}`).join(", ");
}
