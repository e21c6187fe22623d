/* Rules: conditions on telemetry that run a command. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, tell } from "../dom.js";
import { ask, confirmed } from "../dialog.js";
import { mayEdit } from "../roles.js";

const COMPARATORS = [[">", "is above"], [">=", "is at least"], ["<", "is below"], ["<=", "is at most"], ["==", "is"], ["!=", "is not"], ["silent", "has not been reported for (seconds)"]];

export async function rules(room, { me, path, signal, again }) {
  const listed = await get(`${path}/rules`, signal);
  const rows = listed.map((rule) => line(rule, { me, path, again }));
  const add = mayEdit(me) ? button("New rule", () => save(null, path, again), { kind: "main" }) : null;
  fill(room, section("Rules", [add], table(["Rule", "When", "Then", "Now", ""], rows, "No rules yet."), h("p", { class: "dim" }, "A rule runs its command once when its conditions become true, and again only after they were false.")));
}

const said = ({ metric, comparator, value }) => (comparator === "silent" ? `${metric} silent for ${value} s` : `${metric} ${comparator} ${value}`);

function line(rule, { me, path, again }) {
  const at = `${path}/rules/${rule.ruleId}`;
  const when = rule.conditions.map(said).join(rule.match === "ANY" ? " or " : " and ");
  const more = [rule.forSeconds ? `for ${rule.forSeconds} s` : null, rule.cooldownSeconds ? `not again within ${rule.cooldownSeconds} s` : null, rule.clearConditions.length ? `until ${rule.clearConditions.map(said).join(" and ")}` : null].filter(Boolean).join(", ");
  const toggle = () => call("PATCH", at, { enabled: !rule.enabled }).then(again);
  const remove = () => confirmed(`Delete “${rule.name}”?`, "It no longer fires.", "Delete", () => call("DELETE", at)).then((gone) => gone && again());
  const editing = mayEdit(me) ? h("div", { class: "switches" }, button("Test", () => tried(rule, at, path)), button(rule.enabled ? "Disable" : "Enable", toggle), button("Edit", () => save(rule, path, again)), button("Delete", remove, { kind: "danger" })) : null;
  const state = rule.enabled ? badge(rule.lastMatched ? "matched" : "not matched", rule.lastMatched ? "warn" : "") : badge("disabled", "dim");
  return row([rule.name, h("small", null, `priority ${rule.priority}`)], [when, more ? h("small", null, more) : null], rule.action.command, [state, rule.disabledReason ? h("small", { class: "bad" }, rule.disabledReason) : null], editing);
}

/* Input that looks like a number is a number; everything else is text. */
const typed = (text) => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text);

async function save(old, path, again) {
  if (old && (old.conditions.length > 1 || old.clearConditions.length)) return json(old, path, again);
  const { metrics, commands } = await get(`${path}/rules/context`);
  if (!metrics.length) return tell(new Error("A rule needs a metric, and the device has not reported any yet."));
  const first = old?.conditions[0] ?? {};
  const made = await ask({
    title: old ? "Edit the rule" : "New rule",
    fields: [
      { name: "name", label: "Name", required: true, value: old?.name },
      { name: "metric", label: "When", options: metrics.map((metric) => [metric, metric]), value: first.metric },
      { name: "comparator", label: "Comparison", options: COMPARATORS, value: first.comparator },
      { name: "value", label: "Value", required: true, value: first.value ?? "" },
      { name: "command", label: "Command", options: commands.map(({ name, label }) => [name, label]), value: old?.action.command },
      { name: "forSeconds", label: "Hold time in seconds", type: "number", value: old?.forSeconds ?? 0 },
      { name: "cooldownSeconds", label: "Cooldown in seconds", type: "number", value: old?.cooldownSeconds ?? 0 },
      { name: "priority", label: "Priority", type: "number", value: old?.priority ?? 100, hint: "The lower value goes first." },
    ],
    action: "Save",
    send: ({ metric, comparator, value, command, ...values }) => {
      const body = { ...values, conditions: [{ metric, comparator, value: value === String(first.value) ? first.value : typed(value) }], action: { ...(old?.action ?? {}), command } };
      return old ? call("PATCH", `${path}/rules/${old.ruleId}`, body) : call("POST", `${path}/rules`, body);
    },
  });
  if (made) await again();
  return undefined;
}

/* Rules with several conditions are edited as JSON. */
async function json(rule, path, again) {
  const { name, conditions, clearConditions, match, action, forSeconds, cooldownSeconds, priority } = rule;
  const made = await ask({
    title: `Edit “${name}”`,
    fields: [{ name: "rule", label: "As JSON", type: "textarea", value: JSON.stringify({ name, match, conditions, clearConditions, action, forSeconds, cooldownSeconds, priority }, null, 2) }],
    action: "Save",
    send: ({ rule: text }) => call("PATCH", `${path}/rules/${rule.ruleId}`, JSON.parse(text ?? "")),
  });
  if (made) await again();
}

async function tried(rule, at, path) {
  const { telemetry } = await get(`${path}/telemetry/latest`);
  const readings = Object.fromEntries(telemetry.map(({ metric, value, valueText }) => [metric, value ?? valueText]));
  const answer = await ask({
    title: `Test “${rule.name}”`,
    intro: "A test switches nothing.",
    fields: [{ name: "readings", label: "Readings", type: "textarea", value: JSON.stringify(readings, null, 2) }],
    action: "Test",
    send: ({ readings: text }) => call("POST", `${at}/test`, { readings: JSON.parse(text ?? "{}") }),
  });
  if (!answer) return;
  tell(`${answer.wouldFire ? "It would fire" : "It would not fire"}: ${answer.conditions.map(({ why }) => why).join("; ")}`, answer.wouldFire ? "warn" : "good");
}
