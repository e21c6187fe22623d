/*
 * The sentences of the service (descriptions in the log, explanations, errors) in another language. A sentence is known by its English form,
 * with its values as {1}, {2}, …; a value may be a sentence of its own;
 * `{1!}` in the translation leaves it as it is, such as the name of a command. `adapters/translator.py` reads the files in the same way.
 */

const PLACEHOLDER = /\{(\d)\}/g;
const PLACE = /\{(\d)(!?)\}/g;
const MAX_DEPTH = 4;
const LITERAL = /[.*+?^${}()|[\]\\]/g;

let exact = {};
let patterns = [];

export async function loadServiceTexts(code) {
  const response = await fetch(`/dashboard/locales/${code}.service.json`);
  exact = response.ok ? await response.json() : {};
  const size = (key) => key.replace(PLACEHOLDER, "").length;
  const keys = Object.keys(exact).filter((key) => key.search(PLACEHOLDER) >= 0).sort((one, other) => size(other) - size(one));
  patterns = keys.map((key) => [patternOf(key), exact[key], key]);
}

const patternOf = (key) => new RegExp(`^${key.split(/\{\d\}/).map((part) => part.replace(LITERAL, "\\$&")).join("(.*?)")}$`, "s");

/* The sentence in the loaded language; null if there is no text for it. `known(value)`: the text of a value that is no sentence, or null. */
export function serviceSentence(text, known = () => null, depth = 0) {
  if (Object.hasOwn(exact, text)) return exact[text];
  if (depth === MAX_DEPTH) return null;
  const colon = text.indexOf(": ");
  const title = text.slice(0, Math.max(colon, 0));
  const type = title.includes(" ") ? known(eventType(title)) : null;
  const valueText = (value) => (value === title && type) || (serviceSentence(value, known, depth + 1) ?? known(value) ?? known(value.replaceAll(" ", "_")) ?? value);
  for (const [pattern, translation, key] of patterns) {
    if (type !== null && !key.startsWith("{1}: ") && !key.startsWith(`${title}: `)) continue; // it would take the type apart
    const found = pattern.exec(text);
    if (found) return translation.replace(PLACE, (_, place, raw) => (raw ? found[place] : valueText(found[place])));
  }
  return type === null ? afterTitle(text, known, depth) : `${type}: ${valueText(text.slice(colon + 2))}`;
}

/* `Command defined: OPEN` begins with the type of its event. */
const eventType = (words) => words.toLowerCase().replaceAll(" ", "_");

/* `Pump: offline for 5 min`: the title is a name or a word of the wire, and what follows may be a sentence. */
function afterTitle(text, known, depth) {
  const colon = text.lastIndexOf(": ");
  if (colon < 0) return null;
  const [title, rest] = [text.slice(0, colon), text.slice(colon + 2)];
  const [titleText, restText] = [known(eventType(title)), serviceSentence(rest, known, depth + 1) ?? known(rest)];
  return titleText === null && restText === null ? null : `${titleText ?? title}: ${restText ?? rest}`;
}
