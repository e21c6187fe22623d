/* The signed-in user. */

import { call } from "../api.js";
import { button, fill, h, section, tell } from "../dom.js";
import { ask } from "../dialog.js";
import { isAdmin } from "../roles.js";

export async function account(room, { me }) {
  const change = isAdmin(me) ? button("Change the password", password) : null;
  const facts = [["Email", me.email], ["Role", me.role], ["Account", me.accountName], ["Plan", me.plan], ["Devices", me.deviceCount]];
  const list = h("dl", null, facts.map(([label, value]) => [h("dt", null, label), h("dd", null, String(value))]));
  fill(room, h("h1", null, me.name), section("Account", [change], list));
}

async function password() {
  await call("POST", "/auth/password/request-otp");
  const changed = await ask({
    title: "Change the password",
    intro: "You received a six-digit code by email; it is valid for ten minutes.",
    fields: [
      { name: "otp", label: "Code", required: true },
      { name: "newPassword", label: "New password", type: "password", required: true, hint: "8 to 256 characters. All your sessions end." },
    ],
    action: "Change",
    send: (values) => call("POST", "/auth/change-password", values),
  });
  if (changed) tell("The password has been changed.");
}
