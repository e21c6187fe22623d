/* A dialog with fields. An error of the service is shown and marks its field; the input is kept. */

import { fill, h } from "./dom.js";

/*
 * fields: [{name, label, type?, value?, required?, options?: [[value, label]], hint?, placeholder?}]
 * send(values) may throw; the promise resolves to its result, or to undefined when the user closes the dialog.
 */
export function ask({ title, intro, fields = [], action, danger = false, send }) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const inputs = new Map(fields.map((field) => [field.name, control(field)]));
    const submit = h("button", { type: "submit", class: danger ? "danger" : "main" }, action);
    const form = h(
      "form",
      { method: "dialog", novalidate: false },
      h("h2", null, title),
      intro ? h("p", null, intro) : null,
      fields.map((field) => labelled(field, inputs.get(field.name))),
      problem,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit),
    );
    const dialog = h("dialog", { onclose: () => done(undefined) }, form);
    const done = (result) => {
      dialog.remove();
      resolve(result);
    };
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (submit.disabled) return;
      submit.disabled = true;
      fill(problem);
      for (const input of inputs.values()) input.removeAttribute("aria-invalid");
      try {
        done(await send(read(fields, inputs)));
      } catch (error) {
        show(error, problem, inputs);
      } finally {
        submit.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function control({ name, type = "text", value, required = false, options, placeholder, multiple }) {
  const shared = { name, id: `field-${name}`, required, placeholder };
  if (options) {
    const chosen = multiple ? (value ?? []) : [value];
    const listed = options.map(([each, label]) => h("option", { value: each, selected: chosen.includes(each) }, label));
    return h("select", { ...shared, multiple, size: multiple ? Math.min(7, options.length) : null }, listed);
  }
  if (type === "textarea") return h("textarea", { ...shared, rows: 4, spellcheck: "false", value });
  if (type === "checkbox") return h("input", { ...shared, type, checked: Boolean(value) });
  const completion = { password: "current-password", email: "email" }[type] ?? "off";
  return h("input", { ...shared, type, value, step: type === "number" ? "any" : null, autocomplete: completion });
}

function labelled(field, input) {
  const hint = field.hint ? h("small", { id: `${input.id}-hint` }, field.hint) : null;
  if (hint) input.setAttribute("aria-describedby", hint.id);
  return h("div", { class: field.type === "checkbox" ? "field check" : "field" }, h("label", { for: input.id }, field.label), input, hint);
}

/* Empty fields are omitted, so that the service's defaults apply. */
function read(fields, inputs) {
  const values = {};
  for (const { name, type, multiple } of fields) {
    const input = inputs.get(name);
    if (type === "checkbox") values[name] = input.checked;
    else if (multiple) values[name] = [...input.selectedOptions].map((option) => option.value);
    else if (input.value !== "") values[name] = type === "number" ? Number(input.value) : input.value;
  }
  return values;
}

function show(error, problem, inputs) {
  const elsewhere = [];
  for (const { field, message } of error.details ?? []) {
    const input = inputs.get(field) ?? inputs.get(field.split(".")[0]);
    input?.setAttribute("aria-invalid", "true");
    elsewhere.push(`${field}: ${message}`);
  }
  fill(problem, elsewhere.length ? elsewhere.join(" · ") : error.message);
  [...inputs.values()].find((input) => input.getAttribute("aria-invalid"))?.focus();
}

export function confirmed(title, intro, action, send) {
  return ask({ title, intro, action, danger: true, send: async () => (await send()) ?? true });
}

/* Shows values that are displayed only once, with buttons to copy them. */
export function reveal(title, intro, entries) {
  return new Promise((resolve) => {
    const lines = entries.map(([label, text]) => {
      const value = text.includes("\n")
        ? h("textarea", { readonly: true, rows: Math.min(16, text.split("\n").length), value: text })
        : h("input", { readonly: true, value: text, onfocus: (event) => event.currentTarget.select() });
      const take = h("button", { type: "button", class: "quiet", "aria-label": `Copy: ${label}`, onclick: (event) => copy(text, event.currentTarget) }, "Copy");
      return h("div", { class: "shown" }, h("label", null, h("span", null, label), value), take);
    });
    const close = h("button", { class: "main" }, "Close");
    const dialog = h("dialog", { class: "wide" }, h("form", { method: "dialog" }, h("h2", null, title), h("p", null, intro), lines, close));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    fill(from, "Copied");
  } catch {
    fill(from, "Select the text and copy it"); // browsers allow the clipboard only over TLS or on localhost
  }
}
