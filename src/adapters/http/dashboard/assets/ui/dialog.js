/* Dialogs; on a phone they rise from the bottom. An error of the service is shown and marks its field; what was typed is kept. */

import { saveFile } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { errorText, t } from "../core/i18n.js";
import { Button } from "./basic_components.js";
import { useCopy } from "./copy_button.js";
import { openDialogs as open } from "./dialog_stack.js";
import { Fields, initialValues, readValues } from "./form_fields.js";

let last = 0;

/* `Content` gets `done(result)`. Resolves to the result, or to undefined if the person closes it. */
export function openDialog(Content, props = {}, { wide = false, keep = false } = {}) {
  return new Promise((resolve) => {
    const id = (last += 1);
    const done = (result) => {
      open.value = open.value.filter((each) => each.id !== id);
      resolve(result);
    };
    open.value = [...open.value, { id, Content, props: { ...props, done }, wide, keep, done }];
  });
}

export function closeDialogs() {
  for (const each of open.value) each.done(undefined);
}

export function Dialogs() {
  return open.value.map((each) => html`<${Frame} key=${each.id} ...${each} />`);
}

function Frame({ id, Content, props, wide, keep, done }) {
  const frame = useRef(null);
  useEffect(() => {
    const element = frame.current;
    // One dialog may ask for a proof above another: each has the name of its own heading.
    for (const heading of element.querySelectorAll("h2")) heading.id ||= `dialog-${id}-title`;
    element.showModal();
    return () => element.close();
  }, []);
  // Chromium closes a dialog at the second Escape even if the first was refused, so the key itself is stopped.
  const refuse = (event) => event.key === "Escape" && event.preventDefault();
  return html`<dialog ref=${frame} class=${wide ? "wide" : ""} aria-labelledby=${`dialog-${id}-title`} onKeyDown=${keep ? refuse : null} onCancel=${(event) => (event.preventDefault(), keep || done(undefined))}>
    <${Content} ...${props} />
  </dialog>`;
}

/* The form of every dialog: `send()` may throw; its result closes the dialog. `mark(details)` shows the faults at their fields. */
export function DialogForm({ title, intro, action, danger, send, done, mark = () => [], children }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const form = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(null);
    mark([]);
    try {
      done((await send()) ?? true);
    } catch (refused) {
      setError({ text: errorText(refused), elsewhere: mark(refused.details ?? []) });
      setBusy(false);
      requestAnimationFrame(() => form.current?.querySelector("[aria-invalid=true]")?.focus());
    }
  };
  return html`<form ref=${form} class="dialog-form" onSubmit=${submit}>
    <h2>${title}</h2>
    <div class="dialog-body">
      ${intro ? html`<p class="dim">${intro}</p>` : null}
      ${children}
    </div>
    ${error ? html`<div class="problem" role="alert"><span>${error.elsewhere.length ? error.elsewhere.map(({ field, message }) => html`<span class="block">${field}: ${message}</span>`) : error.text}</span></div>` : null}
    <footer class="dialog-foot">
      <${Button} act=${() => done(undefined)}>${t("Cancel")}<//>
      <${Button} type="submit" kind=${danger ? "danger solid" : "main"} aria-busy=${busy ? "true" : null}>${action}<//>
    </footer>
  </form>`;
}

/* fields: see form_fields.js. `send(values)`; empty fields are left out of `values`. */
export function ask({ fields = [], send, ...frame }, options) {
  return openDialog(Ask, { fields, send, frame }, options);
}

function Ask({ fields, send, frame, done }) {
  const [values, setValues] = useState(() => initialValues(fields));
  const [faults, setFaults] = useState({});
  const mark = (details) => {
    const known = new Set(fields.map(({ name }) => name));
    const own = details.filter(({ field }) => known.has(field.split(".")[0]));
    setFaults(Object.fromEntries(own.map(({ field, message }) => [field.split(".")[0], message])));
    return details.filter((each) => !own.includes(each));
  };
  return html`<${DialogForm} ...${frame} done=${done} mark=${mark} send=${() => send(readValues(fields, values))}>
    <${Fields} fields=${fields} values=${values} faults=${faults} onChange=${(name, value) => setValues((before) => ({ ...before, [name]: value }))} />
  <//>`;
}

export const confirmed = (title, intro, action, send) => ask({ title, intro, action, danger: true, send: async () => (await send()) ?? true });

/* For what cannot be undone: the person types the name. */
export function confirmedByName(title, intro, name, action, send) {
  const fields = [{ name: "name", label: t("Type “{name}” to confirm", { name }), required: true }];
  const check = async ({ name: typed }) => {
    if (typed !== name) throw Object.assign(new Error(t("Its name is “{name}”.", { name })), { details: [] });
    return (await send()) ?? true;
  };
  return ask({ title, intro, fields, action, danger: true, send: check });
}

/* Values that are shown only once: Escape does not close it. `file`: {name, text} that can be downloaded. */
export function reveal(title, intro, entries, file = null) {
  return openDialog(Reveal, { title, intro, entries, file }, { wide: true, keep: true });
}

function Reveal({ title, intro, entries, file, done }) {
  const save = () => saveFile(new Blob([file.text], { type: "text/plain" }), file.name);
  return html`<div class="dialog-form">
    <h2>${title}</h2>
    <div class="dialog-body"><p class="dim">${intro}</p>${entries.map(([label, text]) => html`<${Secret} label=${label} text=${text} />`)}</div>
    <footer class="dialog-foot">${file ? html`<${Button} icon="download" act=${save}>${t("Download")}<//>` : null}<${Button} kind="main" act=${() => done(true)}>${t("I have stored it")}<//></footer>
  </div>`;
}

function Secret({ label, text }) {
  const field = useRef(null);
  const [said, copy] = useCopy(field, text);
  const lines = text.split("\n").length;
  const value = lines > 1 ? html`<textarea ref=${field} readonly rows=${Math.min(14, lines)} value=${text} />` : html`<input ref=${field} readonly value=${text} onFocus=${(event) => event.currentTarget.select()} />`;
  return html`<div class="secret"><label class="field"><span>${label}</span>${value}</label><${Button} icon="copy" act=${copy} aria-label=${t("Copy: {label}", { label })}>${said}<//></div>`;
}
