/* Waiting and decided approvals. */

import { call, get } from "../api.js";
import { badge, button, fill, h, row, section, table, tell, time } from "../dom.js";
import { names } from "../names.js";
import { isAdmin } from "../roles.js";

const LOOK_EVERY_MS = 5_000;

export const waiting = () => get("/approvals?status=PENDING");

export async function approvals(room, { me, fleet, signal, recount }) {
  const named = await names(signal);
  let drawn = "";
  const draw = async () => {
    const [open, all] = await Promise.all([get("/approvals?status=PENDING", signal), get("/approvals", signal)]);
    const now = JSON.stringify([open, all]);
    if (now === drawn) return; // avoids redrawing under the pointer
    drawn = now;
    const name = (id) => h("a", { href: `#/device/${id}` }, fleet.devices.get(id)?.name ?? id);
    const pending = open.map((each) => row(asked(each), name(each.deviceId), named(each.requestedBy), time(each.createdAt), time(each.expiresAt), isAdmin(me) ? decide(each, draw, recount) : ""));
    const over = all.filter(({ status }) => status !== "PENDING").slice(0, 50).map((each) => row(asked(each), name(each.deviceId), named(each.requestedBy), badge(each.status.toLowerCase(), { APPROVED: "good", DENIED: "bad" }[each.status] ?? "dim"), each.decidedBy ? named(each.decidedBy) : "", time(each.decidedAt, "–")));
    fill(
      room,
      h("h1", null, "Approvals"),
      section("Waiting", [], table(["Command", "Device", "Requested by", "Requested", "Expires", ""], pending, "Nothing waits for approval.")),
      section("Decided", [], table(["Command", "Device", "Requested by", "", "Decided by", "When"], over, "Nothing yet.")),
    );
  };
  await draw();
  const timer = setInterval(() => draw().catch(() => {}), LOOK_EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function asked({ cmd, params }) {
  return [h("strong", null, cmd), params === null || params === undefined ? null : h("code", null, ` ${JSON.stringify(params)}`)];
}

function decide({ deviceId, approvalId, cmd }, draw, recount) {
  const path = `/devices/${deviceId}/approvals/${approvalId}`;
  const after = async (said) => {
    tell(said);
    await Promise.all([draw(), recount()]);
  };
  const approve = () => call("POST", `${path}/approve`).then(() => after(`${cmd} was approved and queued.`));
  const deny = () => call("POST", `${path}/deny`).then(() => after(`${cmd} was denied.`));
  return h("div", { class: "switches" }, button("Approve", approve, { kind: "main" }), button("Deny", deny, { kind: "danger" }));
}
