/* Commands of a device and their executions. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, time } from "../dom.js";
import { ask, confirmed } from "../dialog.js";
import { order } from "../orders.js";
import { mayEdit } from "../roles.js";

const KINDS = { DONE: "good", FAILED: "bad", TIMED_OUT: "bad", EXPIRED: "bad" };
const LOOK_AFTER_MS = 400;

export async function control(room, { me, fleet, deviceId, path, signal, again }) {
  const definitions = await get(`${path}/commands`, signal);
  const said = h("output", { class: "said" });
  const sent = h("div");
  const refresh = async () => fill(sent, executions((await get(`${path}/executions?limit=20`, signal)).data));
  const run = async (definition) => {
    const params = definition.paramsSchema ? await parameters(definition) : {};
    if (params === undefined) return;
    await order(deviceId, { cmd: definition.name, ...params }, said, signal);
    await refresh();
  };
  const commands = definitions.map((definition) => h("li", null, button(definition.label, () => run(definition), { kind: shade(definition) }), about(definition, me, path, again)));
  const add = mayEdit(me) ? button("Define a command", () => define(path, again)) : null;
  fill(
    room,
    section("Commands", [add], h("ul", { class: "commands" }, commands), said),
    section("Executions", [button("Refresh", refresh)], sent),
  );
  await refresh();
  let soon = null;
  const unwatch = fleet.watch((changed) => {
    if (changed !== deviceId) return;
    clearTimeout(soon);
    soon = setTimeout(() => refresh().catch(() => {}), LOOK_AFTER_MS);
  });
  signal.addEventListener("abort", () => (unwatch(), clearTimeout(soon)));
}

const shade = ({ name }) => ({ ON: "on", OFF: "off" })[name] ?? "";

function about(definition, me, path, again) {
  const change = (changes) => call("PATCH", `${path}/commands/${definition.commandId}`, changes).then(again);
  const remove = () => confirmed(`Remove ${definition.name}?`, "Rules and schedules that use it are then skipped.", "Remove", () => call("DELETE", `${path}/commands/${definition.commandId}`)).then((gone) => gone && again());
  const own = definition.commandId !== null && mayEdit(me);
  return h(
    "span",
    { class: "dim" },
    definition.name,
    definition.kind === "QUERY" ? " · query" : "",
    definition.requiresApproval ? badge("needs approval", "warn") : null,
    definition.description ? ` · ${definition.description}` : "",
    own ? button(definition.requiresApproval ? "Remove approval" : "Require approval", () => change({ requiresApproval: !definition.requiresApproval }), { kind: "quiet" }) : null,
    own ? button("Remove", remove, { kind: "quiet" }) : null,
  );
}

function parameters(definition) {
  return ask({
    title: definition.label,
    intro: definition.description,
    fields: [{ name: "params", label: "Parameters, as JSON", type: "textarea", value: JSON.stringify(example(definition.paramsSchema), null, 2), hint: JSON.stringify(definition.paramsSchema) }],
    action: "Send",
    send: async ({ params }) => {
      try {
        return params === undefined ? {} : { params: JSON.parse(params) };
      } catch (error) {
        throw new Error(`Invalid JSON: ${error.message}`);
      }
    },
  });
}

function example({ properties = {} }) {
  const value = (of) => of.default ?? of.enum?.[0] ?? { number: of.minimum ?? 0, integer: of.minimum ?? 0, boolean: false, string: "" }[of.type] ?? null;
  return Object.fromEntries(Object.entries(properties).map(([name, of]) => [name, value(of)]));
}

async function define(path, again) {
  const made = await ask({
    title: "Define a command",
    intro: "A definition with the name of a built-in command (such as ON) overrides it for this device, for example to require approval.",
    fields: [
      { name: "name", label: "Name", required: true, placeholder: "FLUSH", hint: "Capital letters, digits and _; sent to the firmware unchanged." },
      { name: "label", label: "Label", required: true },
      { name: "description", label: "What it does" },
      { name: "kind", label: "Kind", options: [["ACTION", "action"], ["QUERY", "query"]] },
      { name: "paramsSchema", label: "Parameters (JSON Schema)", type: "textarea", placeholder: '{"type": "object", "properties": {"seconds": {"type": "integer"}}}' },
      { name: "requiresApproval", label: "Requires approval", type: "checkbox" },
    ],
    action: "Define",
    send: (values) => call("POST", `${path}/commands`, values.paramsSchema ? { ...values, paramsSchema: JSON.parse(values.paramsSchema) } : values),
  });
  if (made) await again();
}

function answered(result) {
  const said = Object.entries(result ?? {}).filter(([, value]) => value !== null);
  return said.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}

function executions(sent) {
  const rows = sent.map((each) => row(each.cmd, badge(each.status, KINDS[each.status] ?? "dim"), each.source, time(each.createdAt), time(each.finishedAt, "–"), answered(each.result)));
  return table(["Command", "Status", "Source", "Created", "Finished", "Result"], rows, "Nothing yet.");
}
