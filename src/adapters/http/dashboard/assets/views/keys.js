/* API keys. A new key can do nothing without a grant. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, time } from "../dom.js";
import { ask, confirmed, reveal } from "../dialog.js";
import { isAdmin } from "../roles.js";

export async function keys(room, { me, signal, again }) {
  const listed = await get("/keys", signal);
  const grants = h("div");
  const rows = listed.map((key) => line(key, { me, grants, signal, again }));
  const add = isAdmin(me) ? button("New key", () => create(again), { kind: "main" }) : null;
  fill(room, h("h1", null, "API keys"), section("Keys", [add], table(["Name", "Prefix", "State", "Last used", "Created", ""], rows, "No keys yet."), h("p", { class: "dim" }, "A key can do nothing without a grant on a device or its project."), grants));
}

function line(key, { me, grants, signal, again }) {
  const path = `/keys/${key.keyId}`;
  const show = async () => {
    const held = await get(`${path}/grants`, signal);
    const rows = held.map((grant) => row(grant.device ? h("a", { href: `#/device/${grant.device.deviceId}/access` }, grant.device.name) : `all devices of ${grant.project.name}`, grant.commands.join(", "), grant.scope.toLowerCase(), grant.rateLimitPerMinute ? `${grant.rateLimitPerMinute} per minute` : "", time(grant.expiresAt, "–")));
    fill(grants, section(`What ${key.name} may do`, [], table(["Device or project", "Commands", "Scope", "Rate limit", "Expires"], rows, "No grants.")));
  };
  const toggle = () => call("PATCH", path, { enabled: !key.enabled }).then(again);
  const remove = () => confirmed(`Delete the key “${key.name}”?`, "Its grants and webhooks are deleted too.", "Delete", () => call("DELETE", path)).then((gone) => gone && again());
  const editing = isAdmin(me) ? [button(key.enabled ? "Disable" : "Enable", toggle), button("Delete", remove, { kind: "danger" })] : null;
  return row(key.name, h("code", null, `${key.prefix}…`), key.enabled ? badge("enabled", "good") : badge("disabled", "warn"), time(key.lastUsedAt), time(key.createdAt), h("div", { class: "switches" }, button("Grants", show), editing));
}

async function create(again) {
  const made = await ask({ title: "New API key", fields: [{ name: "name", label: "Name", required: true }], action: "Create", send: (values) => call("POST", "/keys", values) });
  if (!made) return;
  await reveal("The new key", "It is shown only once; the service stores only a hash.", [["Key", made.key]]);
  await again();
}
