/* Webhooks and their delivery attempts. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, tell, time } from "../dom.js";
import { ask, confirmed, reveal } from "../dialog.js";
import { isAdmin } from "../roles.js";

export async function webhooks(room, { me, signal, again }) {
  const [listed, keys] = await Promise.all([get("/webhooks", signal), get("/keys", signal)]);
  const names = new Map(keys.map(({ keyId, name }) => [keyId, name]));
  const deliveries = h("div");
  const rows = listed.map((webhook) => line(webhook, names, { me, deliveries, signal, again }));
  const add = isAdmin(me) ? button("New webhook", () => create(keys, again), { kind: "main" }) : null;
  fill(room, h("h1", null, "Webhooks"), section("Webhooks", [add], table(["Address", "API key", "State", "Secret", ""], rows, "No webhooks yet."), deliveries));
}

function line(webhook, names, { me, deliveries, signal, again }) {
  const path = `/webhooks/${webhook.webhookId}`;
  const show = () => log(webhook, path, { me, deliveries, signal });
  const ping = () => call("POST", `${path}/ping`).then(() => tell("A test event is queued.")).then(show);
  const rotate = async () => {
    const made = await confirmed("A new secret?", "The old secret stops signing at once, also for retries.", "Rotate", () => call("POST", `${path}/rotate-secret`));
    if (made) await reveal("The new secret", "It is shown only once.", [["Secret", made.secret]]);
    await again();
  };
  const toggle = () => call("PATCH", path, { enabled: !webhook.enabled }).then(again);
  const remove = () => confirmed("Delete this webhook?", "Pending deliveries are cancelled.", "Delete", () => call("DELETE", path)).then((gone) => gone && again());
  const editing = isAdmin(me) ? [button("Ping", ping), button("New secret", rotate), button(webhook.enabled ? "Disable" : "Enable", toggle), button("Delete", remove, { kind: "danger" })] : null;
  const state = [webhook.enabled ? badge("enabled", "good") : badge("disabled", "warn"), webhook.disabledReason ? h("small", null, webhook.disabledReason) : null];
  return row(webhook.url, names.get(webhook.keyId) ?? webhook.keyId, state, h("code", null, `${webhook.secretPrefix}…`), h("div", { class: "switches" }, button("Deliveries", show), editing));
}

async function log({ url }, path, { me, deliveries, signal }) {
  const attempts = await get(`${path}/deliveries`, signal);
  const redeliver = ({ deliveryId }) => call("POST", `${path}/deliveries/${deliveryId}/redeliver`).then(() => tell("It is queued again."));
  const rows = attempts.map((each) =>
    row(time(each.createdAt), each.eventType, String(each.attempt), badge(each.succeeded ? String(each.statusCode) : (each.error ?? String(each.statusCode ?? "in progress")), each.succeeded ? "good" : "bad"), each.durationMs === null ? "" : `${each.durationMs} ms`, time(each.nextAttemptAt, "–"), isAdmin(me) ? button("Redeliver", () => redeliver(each)) : ""),
  );
  const refresh = button("Refresh", () => log({ url }, path, { me, deliveries, signal }));
  fill(deliveries, section(`The last attempts to ${new URL(url).host}`, [refresh], table(["When", "Event", "Attempt", "Response", "Duration", "Next", ""], rows, "Nothing has been sent yet.")));
}

async function create(keys, again) {
  const made = await ask({
    title: "New webhook",
    intro: "It receives signed events of the devices that its key may see.",
    fields: [
      { name: "url", label: "Address", type: "url", required: true, placeholder: "https://" },
      { name: "keyId", label: "API key", required: true, options: keys.map(({ keyId, name }) => [keyId, name]) },
    ],
    action: "Make it",
    send: (values) => call("POST", "/webhooks", values),
  });
  if (!made) return;
  await reveal("The signing secret", "It is shown only once.", [["Secret", made.secret]]);
  await again();
}
