/*
 * Texts. The key of a text is its English form; a language file maps it to the other language. See docs/how-to/dashboard.md.
 *
 *   t("Delete “{name}”?", { name })          n("{count} device", "{count} devices", count)
 */

import { loadServiceTexts, serviceSentence } from "./service_texts.js";

export const LANGUAGES = { en: "English", de: "Deutsch" };
const KEPT = "latchboard.language";

let texts = {};
let current = "en";
let plural = new Intl.PluralRules("en");

export const language = () => current;
/* The locale of dates and numbers: the browser's own variant of the language, such as en-GB. */
export const locale = () => navigator.languages.find((each) => each.split("-")[0] === current) ?? current;
export const chosenLanguage = () => localStorage.getItem(KEPT) ?? "";

export function chooseLanguage(code) {
  if (code) localStorage.setItem(KEPT, code);
  else localStorage.removeItem(KEPT);
}

/* Loads the chosen language, or the browser's first that there is a file for. */
export async function loadLanguage() {
  const wanted = [chosenLanguage(), ...navigator.languages].map((each) => each.split("-")[0]);
  current = wanted.find((each) => each in LANGUAGES) ?? "en";
  if (current !== "en") [{ texts }] = await Promise.all([import(`../locales/${current}.js`), loadServiceTexts(current)]);
  plural = new Intl.PluralRules(current);
  document.documentElement.lang = current;
}

export function t(text, values) {
  return put(texts[text] ?? text, values);
}

export function n(one, other, count, values) {
  const form = plural.select(count) === "one" ? 0 : 1;
  const number = new Intl.NumberFormat(locale()).format(count);
  return put((texts[one] ?? [one, other])[form], { ...values, count: number });
}

/* A word of the wire, such as DONE or rule_disabled: its translation, or the word itself in lower case. */
export function word(code) {
  return texts[`word:${code}`] ?? WORDS[code] ?? String(code).toLowerCase().replaceAll("_", " ");
}

/* What the service says, which is English: in the other language. */
export function serviceText(text) {
  return current === "en" || !text ? text : (serviceSentence(text, knownValue) ?? text);
}

const ISO_TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
const knownValue = (value) => texts[`word:${value}`] ?? (ISO_TIME.test(value) ? new Date(value).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "short" }) : null);

/*
 * The text of an error of the service: its sentence in the other language, else that of its code. The code's comes first for a link: its sentence
 * begins with the name of a field that nobody has seen.
 */
export function errorText(error) {
  if (current === "en") return error.message;
  const ofCode = texts[`error:${error.code}`];
  return (error.code === "LINK_INVALID" && ofCode) || (serviceSentence(error.message ?? "", knownValue) ?? ofCode ?? error.message);
}

function put(text, values) {
  return values ? text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole)) : text;
}

const WORDS = { Owner: "Owner", Admin: "Admin", Member: "Member", Viewer: "Viewer", SLOT_PENDING: "planned", SLOT_ACTIVE: "running", ON: "on", OFF: "off", PENDING: "pending", TIMED_OUT: "no answer", RAN_ON_DEVICE: "run by the device", LEFT_TO_DEVICE: "left to the device", CLAIM_PENDING: "waiting", CLAIM_APPROVED: "approved, not fetched yet", CLAIM_DENIED: "denied", CLAIM_CLAIMED: "has its credentials", BULK_CREATED: "registered", BULK_EXISTS: "already there", BULK_FAILED: "not registered", GROUP_DONE: "done", GROUP_QUEUED: "queued", GROUP_PENDING: "waits for approval", GROUP_REFUSED: "refused" };
