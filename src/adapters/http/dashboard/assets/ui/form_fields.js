/*
 * Form fields.
 *
 * field: {name, label, type?, value?, required?, options?: [[value, label]], hint?, placeholder?, when?: (values) => boolean}
 * type: text (default), email, password, url, number, integer, textarea, checkbox, select, many (buttons that stay pressed), checks, days, time, datetime-local, search
 */

import { weekdays } from "../core/format.js";
import { html } from "../core/html.js";

const SEVERAL = new Set(["many", "checks", "days"]);

export function initialValues(fields) {
  return Object.fromEntries(fields.map(({ name, value, type, options }) => [name, value ?? (type === "checkbox" ? false : SEVERAL.has(type) ? [] : options ? (options[0]?.[0] ?? "") : "")]));
}

/* Empty fields are left out, so that the service's defaults apply. */
export function readValues(fields, values) {
  const read = {};
  for (const { name, type, when } of fields) {
    const value = values[name];
    if (when && !when(values)) continue;
    if (type === "checkbox" || SEVERAL.has(type)) read[name] = value;
    else if (value !== "" && value !== undefined) read[name] = type === "number" || type === "integer" ? Number(value) : value;
  }
  return read;
}

export function Fields({ fields, values, faults = {}, onChange, prefix = "field" }) {
  return fields.filter(({ when }) => !when || when(values)).map((field) => html`<${Field} key=${field.name} ...${field} id=${`${prefix}-${field.name}`} value=${values[field.name]} fault=${faults[field.name]} onChange=${(value) => onChange(field.name, value)} />`);
}

export function Field({ id, label, hint, fault, type, ...rest }) {
  const notes = [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(" ") || null;
  const below = html`${hint ? html`<small id=${`${id}-hint`}>${hint}</small>` : null}${fault ? html`<small id=${`${id}-fault`} class="bad">${fault}</small>` : null}`;
  const shared = { id, type, notes, fault, label, ...rest };
  if (type === "checkbox") return html`<div class="field check"><label for=${id}><${Control} ...${shared} /><span>${label}</span></label>${below}</div>`;
  if (SEVERAL.has(type)) return html`<fieldset class="field"><legend>${label}</legend><${Control} ...${shared} />${below}</fieldset>`;
  return html`<div class="field"><label for=${id}>${label}</label><${Control} ...${shared} />${below}</div>`;
}

const DAYS = [1, 2, 3, 4, 5, 6, 0];
const COMPLETION = { password: "current-password", email: "email" };

function Control({ id, name, type = "text", value, options, notes, fault, onChange, required, placeholder, hint, label, when, autocomplete, ...rest }) {
  const shared = { id, name, required, placeholder, "aria-describedby": notes, "aria-invalid": fault ? "true" : null, ...rest };
  const typed = (event) => onChange(event.currentTarget.value);
  if (type === "days") return html`<${Chips} options=${DAYS.map((day) => [day, weekdays()[day]])} value=${value} onChange=${onChange} />`;
  if (type === "checks") return html`<${Checks} options=${options} value=${value} onChange=${onChange} />`;
  if (type === "many") return html`<${Chips} options=${options} value=${value} onChange=${onChange} />`;
  if (options) return html`<select ...${shared} value=${value} onChange=${typed}>${options.map(([each, text]) => html`<option value=${each} selected=${String(each) === String(value)}>${text}</option>`)}</select>`;
  if (type === "textarea") return html`<textarea ...${shared} rows=${rest.rows ?? 4} spellcheck="false" value=${value} onInput=${typed} />`;
  if (type === "checkbox") return html`<input ...${shared} type="checkbox" role="switch" checked=${Boolean(value)} onChange=${(event) => onChange(event.currentTarget.checked)} />`;
  const numeric = type === "number" || type === "integer";
  return html`<input ...${shared} type=${numeric ? "number" : type} step=${type === "number" ? "any" : null} inputmode=${numeric ? (type === "integer" ? "numeric" : "decimal") : null} autocomplete=${autocomplete ?? COMPLETION[type] ?? "off"} value=${value} onInput=${typed} />`;
}

const toggled = (value, each) => (value.includes(each) ? value.filter((other) => other !== each) : [...value, each]);

/* Several of a few whose names are long. */
function Checks({ options, value, onChange }) {
  return html`<div class="checks">${options.map(([each, text]) => html`<label key=${each}><input type="checkbox" role="switch" checked=${value.includes(each)} onChange=${() => onChange(toggled(value, each))} /><span>${text}</span></label>`)}</div>`;
}

/* Several of a few: buttons that stay pressed. */
function Chips({ options, value, onChange }) {
  const toggle = (each) => onChange(toggled(value, each));
  return html`<div class="chips">${options.map(([each, text]) => html`<button type="button" aria-pressed=${String(value.includes(each))} onClick=${() => toggle(each)}>${text}</button>`)}</div>`;
}
