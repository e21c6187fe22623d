/*
 * A form for the parameters of a command, from its JSON Schema: numbers, switches, choices, text, and objects nested once. What a schema says
 * beyond that is edited as JSON, so every command can be sent.
 */

import { html } from "../core/html.js";
import { t } from "../core/i18n.js";
import { Field } from "./form_fields.js";

const isObject = (schema) => schema?.type === "object" && schema.properties !== undefined;
const isSimple = (schema) => ["string", "number", "integer", "boolean"].includes(schema?.type) || Array.isArray(schema?.enum);

/* Whether the fields below can show the whole schema. */
export function canShow(schema, depth = 0) {
  return isObject(schema) && Object.values(schema.properties).every((each) => isSimple(each) || (depth === 0 && canShow(each, 1)));
}

/* The values that the form begins with: given ones, else the schema's defaults. */
export function startValues(schema, given) {
  if (!canShow(schema)) return { json: given === null || given === undefined ? "" : JSON.stringify(given, null, 2) };
  return startObject(schema, given ?? {});
}

function startObject(schema, given) {
  return Object.fromEntries(Object.entries(schema.properties).map(([name, each]) => {
    if (isObject(each)) return [name, startObject(each, given[name] ?? {})];
    const value = given[name] ?? each.default ?? (schema.required?.includes(name) ? firstValue(each) : "");
    return [name, Array.isArray(each.enum) ? JSON.stringify(value) : value];
  }));
}

/* Those of a command, of which some may be given; null for a command that has none. */
export function startParams(commands, command, given) {
  const schema = commands.find(({ name }) => name === command)?.paramsSchema;
  return schema ? startValues(schema, given) : null;
}

const firstValue = (schema) => schema.enum?.[0] ?? { boolean: false, number: schema.minimum ?? "", integer: schema.minimum ?? "" }[schema.type] ?? "";

/* The parameters as typed. Throws an error that names the field when the JSON is wrong. */
export function readParams(schema, values) {
  if (canShow(schema)) return readObject(schema, values);
  if (!values.json.trim()) return undefined;
  try {
    return JSON.parse(values.json);
  } catch (error) {
    throw Object.assign(new Error(t("Invalid JSON: {message}", { message: error.message })), { details: [] });
  }
}

function readObject(schema, values) {
  const read = {};
  for (const [name, each] of Object.entries(schema.properties)) {
    const value = values[name];
    if (isObject(each)) {
      const inner = readObject(each, value);
      if (Object.keys(inner).length || schema.required?.includes(name)) read[name] = inner;
    } else if (value === "" || value === undefined || value === '""') continue;
    else if (Array.isArray(each.enum)) read[name] = JSON.parse(value);
    else read[name] = each.type === "number" || each.type === "integer" ? Number(value) : value;
  }
  return read;
}

/* `faults`: {path: message}, such as {"params.seconds": "…"}. */
export function SchemaFields({ schema, values, onChange, faults = {}, path = "params" }) {
  if (path === "params" && !canShow(schema)) {
    return html`<${Field} id=${`${path}-json`} name="json" type="textarea" label=${t("Parameters, as JSON")} value=${values.json} fault=${faults[path]} hint=${JSON.stringify(schema)} onChange=${(json) => onChange({ json })} />`;
  }
  return Object.entries(schema.properties).map(([name, each]) => {
    const here = `${path}.${name}`;
    const put = (value) => onChange({ ...values, [name]: value });
    if (isObject(each)) return html`<fieldset class="group" key=${name}><legend>${each.title ?? name}</legend><${SchemaFields} schema=${each} values=${values[name]} onChange=${put} faults=${faults} path=${here} /></fieldset>`;
    return html`<${Field} key=${name} id=${here} name=${name} ...${kindOf(each, schema.required?.includes(name))} label=${each.title ?? name} hint=${hintOf(each)} value=${values[name]} fault=${faults[here]} onChange=${put} />`;
  });
}

function kindOf(schema, required) {
  if (Array.isArray(schema.enum)) return { options: [...(required ? [] : [['""', "–"]]), ...schema.enum.map((each) => [JSON.stringify(each), String(each)])] };
  if (schema.type === "boolean") return { type: "checkbox" };
  const limits = { min: schema.minimum, max: schema.maximum, maxlength: schema.maxLength, minlength: schema.minLength };
  return { type: { number: "number", integer: "integer" }[schema.type] ?? "text", required, ...limits };
}

function hintOf({ description, minimum, maximum }) {
  const range = minimum !== undefined && maximum !== undefined ? t("{minimum} to {maximum}", { minimum, maximum }) : minimum !== undefined ? t("at least {minimum}", { minimum }) : maximum !== undefined ? t("at most {maximum}", { maximum }) : null;
  return [description, range].filter(Boolean).join(" · ") || null;
}

/* The service's faults of parameters (`params.seconds`, or `params` alone) by their paths. */
export const paramFaults = (details) => Object.fromEntries(details.filter(({ field }) => field === "params" || field.startsWith("params.")).map(({ field, message }) => [field, message]));
