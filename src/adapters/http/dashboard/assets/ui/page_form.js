/* A form that is a part of a page. What was typed is kept when the service refuses it; faults show at their fields. */

import { html, useState } from "../core/html.js";
import { errorText } from "../core/i18n.js";
import { Button } from "./basic_components.js";
import { Fields, initialValues, readValues } from "./form_fields.js";

/* `fieldsOf(values)`: see form_fields.js. `refused(error)`: the text to show for it, if not the service's. */
export function PageForm({ fieldsOf, prefix, action, icon, kind = "main", send, refused = errorText, children }) {
  const [values, setValues] = useState(() => initialValues(fieldsOf({})));
  const [faults, setFaults] = useState({});
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const fields = fieldsOf(values);
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setSaid("");
    try {
      await send(readValues(fields, values));
    } catch (error) {
      setFaults(Object.fromEntries((error.details ?? []).map(({ field, message }) => [field, message])));
      setSaid(refused(error));
      setBusy(false);
    }
  };
  return html`<form onSubmit=${submit}>
    ${children}
    <${Fields} fields=${fields} values=${values} faults=${faults} prefix=${prefix} onChange=${(name, value) => setValues((before) => ({ ...before, [name]: value }))} />
    ${said ? html`<div class="problem" role="alert">${said}</div>` : null}
    <${Button} type="submit" kind=${kind} icon=${icon} aria-busy=${busy ? "true" : null}>${action}<//>
  </form>`;
}
