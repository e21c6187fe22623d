/* The frame: side bar on the desktop, tab bar at the thumb on the phone, and the state of the connection always in view. */

import { ago, now } from "../core/format.js";
import { html, useEffect, useRef } from "../core/html.js";
import { t, word } from "../core/i18n.js";
import { connection, countWaiting, epoch, ofKind, useEvents, waitingCount } from "../core/live_data_hooks.js";
import { noticeEvent } from "../core/browser_notifications.js";
import { place } from "../core/router.js";
import { me } from "../core/signed_in_user.js";
import { pages } from "../pages/page_registry.js";
import { Icon } from "./icons.js";
import { tell } from "./toasts.js";

const SILENT_MS = 14_000;

const sections = () => [
  { name: "devices", icon: "layout-grid", label: t("Devices") },
  { name: "approvals", icon: "inbox", label: t("Approvals"), count: waitingCount.value },
  { name: "calendar", icon: "calendar-days", label: t("Calendar") },
  { name: "log", icon: "scroll-text", label: t("Log") },
];
const settings = () => [
  { name: "fleet", icon: "list-checks", label: t("Fleet") },
  { name: "keys", icon: "key-round", label: t("API keys") },
  { name: "webhooks", icon: "webhook", label: t("Webhooks") },
  { name: "team", icon: "users", label: t("Team") },
  { name: "network", icon: "smartphone", label: t("Network") },
];

export function Shell() {
  const { name, rest } = place.value;
  const current = { device: "devices", add: "devices", "second-factor": "account", cluster: "network" }[name] ?? name;
  const main = useRef(null);
  const first = useRef(true);
  const Page = pages[name] ?? pages.devices;
  useEffect(() => {
    countWaiting();
  }, [epoch.value]);
  useEvents((event) => {
    if (ofKind("approval_")(event)) countWaiting();
    noticeEvent(event, tell);
  });
  useEffect(() => {
    // After a change of the page the keyboard continues at its heading, not at the link that is gone.
    if (first.current) first.current = false;
    else {
      window.scrollTo(0, 0);
      main.current.querySelector("h1")?.focus({ preventScroll: true });
    }
  }, [name, rest[0]]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>${t("Skip to the content")}</a>
    <div class="shell">
      <aside class="side">
        <a href="#/devices" class="brand"><img src="/dashboard/icon.svg" alt="" width="28" height="28" />Latchboard</a>
        <nav aria-label=${t("Sections")}>
          ${sections().map((each) => html`<${Section} ...${each} current=${current} />`)}
          <hr />
          ${settings().map((each) => html`<${Section} ...${each} current=${current} />`)}
        </nav>
        <div class="side-foot">
          <${Live} />
          <${Section} name="account" icon="circle-user" label=${me.value.name} sub=${word(me.value.role)} current=${current} />
        </div>
      </aside>
      <header class="top"><a href="#/devices" class="brand"><img src="/dashboard/icon.svg" alt="" width="24" height="24" />Latchboard</a><${Live} /></header>
      <main ref=${main} id="main" tabindex="-1"><${Page} key=${`${name}/${rest[0] ?? ""}`} /></main>
      <nav class="tabbar" aria-label=${t("Sections")}>
        ${sections().map((each) => html`<${Section} ...${each} current=${current} />`)}
        <${Section} name="more" icon="menu" label=${t("More")} current=${["fleet", "keys", "webhooks", "team", "network", "account"].includes(current) ? "more" : current} />
      </nav>
    </div>`;
}

function Section({ name, icon, label, sub, count, current }) {
  const shown = count ? html`<span class="count" aria-label=${t("{count} waiting", { count })}>${count}</span>` : null;
  return html`<a href=${`#/${name}`} aria-current=${current === name ? "page" : null}><${Icon} name=${icon} /><span>${label}${sub ? html`<small>${sub}</small>` : null}</span>${shown}</a>`;
}

/* Live, silent for some time, or reconnecting: what the page knows about its own age. */
function Live() {
  const { live, heardAt, since } = connection.value;
  const silent = live && now.value - heardAt > SILENT_MS;
  const kind = silent ? "warn" : live ? "good" : "bad";
  const text = silent ? t("Last heard {when}", { when: ago(heardAt) }) : live ? t("Live") : heardAt && now.value - since > 3_000 ? t("Reconnecting; last heard {when}", { when: ago(heardAt) }) : t("Connecting");
  return html`<span class=${`live ${kind}`} role="status"><${Icon} name=${live ? "wifi" : "wifi-off"} size=${16} /><span>${text}</span></span>`;
}
