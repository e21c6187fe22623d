/* The frame of the page: sign-in, navigation and the current view. Addresses are `#/name/…`. */

import { get, mayResume, onSession, signIn, signOut, token } from "./api.js";
import { badge, busy, fill, h, tell } from "./dom.js";
import { Fleet } from "./fleet.js";
import { account } from "./views/account.js";
import { approvals, waiting } from "./views/approvals.js";
import { device } from "./views/device.js";
import { devices } from "./views/devices.js";
import { keys } from "./views/keys.js";
import { log } from "./views/log.js";
import { team } from "./views/team.js";
import { webhooks } from "./views/webhooks.js";

const VIEWS = { devices, device, approvals, log, keys, webhooks, team, account };
const TABS = [["devices", "Devices"], ["approvals", "Approvals"], ["log", "Log"], ["keys", "API keys"], ["webhooks", "Webhooks"], ["team", "Team"]];
const LOOK_FOR_APPROVALS_MS = 15_000;

const page = document.getElementById("page");
let here = null; // state of the signed-in page: {me, fleet, stop, leave}

function signInPage(said = "") {
  const problem = h("p", { class: "problem", role: "alert" }, said);
  const email = h("input", { type: "email", id: "email", autocomplete: "username", required: true });
  const password = h("input", { type: "password", id: "password", autocomplete: "current-password", required: true });
  const submit = h("button", { class: "main" }, "Sign in");
  const form = h(
    "form",
    null,
    h("h1", null, "Latchboard"),
    h("label", { for: "email" }, h("span", null, "Email"), email),
    h("label", { for: "password" }, h("span", null, "Password"), password),
    problem,
    submit,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(submit, async () => {
      fill(problem);
      try {
        await signIn(email.value, password.value);
      } catch (error) {
        fill(problem, error.message);
        password.select();
        return;
      }
      await start();
    });
  });
  fill(page, h("main", { class: "narrow" }, form, h("p", { class: "dim" }, "Programs use API keys; see ", h("a", { href: "/docs" }, "the API"), ".")));
  email.focus();
}

async function start() {
  const me = await get("/auth/me");
  const fleet = new Fleet();
  const main = h("main");
  const count = badge("", "count");
  const line = badge("connecting", "dim");
  const links = new Map(TABS.map(([name, label]) => [name, h("a", { href: `#/${name}` }, label, name === "approvals" ? count : null)]));
  const person = h("a", { href: "#/account", title: me.email }, `${me.name} · ${me.role}`);
  const out = h("button", { type: "button", class: "quiet", onclick: (event) => busy(event.currentTarget, signOut) }, "Sign out");
  const nav = h("nav", { "aria-label": "Sections" }, h("a", { href: "#/devices", class: "brand" }, "Latchboard"), [...links.values()]);
  fill(page, h("div", { class: "bar" }, nav, h("div", { class: "person" }, line, person, out)), main);
  const unwatch = fleet.watch(() => {
    line.className = `badge ${fleet.live ? "good" : "bad"}`;
    fill(line, fleet.live ? "live" : "not connected");
  });
  const recount = async () => {
    const open = await waiting().catch(() => null);
    if (open) fill(count, open.length ? String(open.length) : "");
  };
  const timer = setInterval(recount, LOOK_FOR_APPROVALS_MS);
  recount();
  here = { me, fleet, main, links, recount, leave: null, stop: () => (clearInterval(timer), unwatch(), fleet.close()) };
  await show();
}

async function show() {
  if (!here) return;
  const [name = "devices", ...rest] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const view = VIEWS[name] ?? devices;
  here.leave?.abort();
  const leave = (here.leave = new AbortController());
  const current = name === "device" ? "devices" : name;
  for (const [each, link] of here.links) link.setAttribute("aria-current", each === current ? "page" : "false");
  const room = h("div", { class: `view ${name}` });
  fill(here.main, room);
  try {
    await view(room, { ...here, rest, signal: leave.signal, again: show });
    document.title = `${room.querySelector("h1")?.textContent ?? "Devices"} · Latchboard`;
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(room, h("h1", null, error.status === 404 ? "Not found" : "This page cannot be shown"), h("p", null, error.message));
  }
}

function over() {
  if (!here) return;
  here.leave?.abort();
  here.stop();
  here = null;
  signInPage();
}

onSession((bearer) => bearer || over());
window.addEventListener("hashchange", show);
window.addEventListener("unhandledrejection", ({ reason }) => tell(reason));

if (mayResume()) {
  token().then(start).catch((error) => signInPage(error.status === 401 ? "" : error.message));
} else {
  signInPage();
}
