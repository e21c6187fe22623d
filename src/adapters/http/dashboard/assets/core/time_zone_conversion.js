/* Clock times of an IANA time zone, for the fields of a form: `2026-11-22T18:30`. */

const formats = new Map();

function format(timeZone) {
  if (!formats.has(timeZone)) formats.set(timeZone, new Intl.DateTimeFormat("en-CA", { timeZone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" }));
  return formats.get(timeZone);
}

export function isZone(name) {
  try {
    format(name);
    return true;
  } catch {
    return false;
  }
}

export function localIn(ms, timeZone) {
  const part = Object.fromEntries(format(timeZone).formatToParts(ms).map(({ type, value }) => [type, value]));
  return `${part.year}-${part.month}-${part.day}T${part.hour}:${part.minute}`;
}

/* Of a repeated clock time the first; a skipped one falls after the gap. */
export function toMs(local, timeZone) {
  const wanted = Date.parse(`${local}Z`);
  let guess = wanted;
  for (let round = 0; round < 3; round += 1) guess += wanted - Date.parse(`${localIn(guess, timeZone)}Z`);
  return guess;
}

/* The change of the clocks between two moments in a zone, in minutes; 0 for none. */
export const clockChange = (from, until, timeZone) => (Date.parse(`${localIn(until, timeZone)}Z`) - until - (Date.parse(`${localIn(from, timeZone)}Z`) - from)) / 60_000;
