/*
 * Tells the person what waits and what went wrong: on every page, and by a notification of the system while the tab is hidden. What to tell and
 * the quiet hours belong to this browser. While no tab is open, nothing is told from here.
 */

import { get } from "./api.js";
import { serviceText, t, word } from "./i18n.js";
import { isAdmin } from "./signed_in_user.js";

const KEPT = "latchboard.notifications";
const MINUTE_MS = 60_000;

/* Kind → the types of events behind it. */
export const KINDS = { APPROVALS: ["approval_requested"], OFFLINE: ["device_offline", "device_online"], RULES: ["rule_disabled"], WEBHOOKS: ["webhook_disabled"], DEVICES: ["device_clock_skew", "device_message_dropped", "device_refused"], DEAD_LETTERS: ["device_message_set_aside"] };
const DEFAULTS = { kinds: Object.keys(KINDS), offlineMinutes: 5, quietFrom: "", quietTo: "" };

export function preferences() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEPT)) };
  } catch {
    return DEFAULTS;
  }
}

export const keepPreferences = (changes) => localStorage.setItem(KEPT, JSON.stringify({ ...preferences(), ...changes }));

const offline = new Map(); // deviceId → timer of a device that went offline

export function forgetPending() {
  for (const timer of offline.values()) clearTimeout(timer);
  offline.clear();
}

/* `tell(text, kind, link)` shows it on the page. */
export function noticeEvent(event, tell) {
  const { eventType, deviceId } = event;
  const chosen = preferences();
  const kind = Object.keys(KINDS).find((each) => KINDS[each].includes(eventType));
  if (kind === undefined || !chosen.kinds.includes(kind) || (kind === "APPROVALS" && !isAdmin())) return;
  if (kind !== "OFFLINE") say(event, tell);
  else if (eventType === "device_online") clearTimeout(offline.get(deviceId));
  else {
    clearTimeout(offline.get(deviceId));
    offline.set(deviceId, setTimeout(() => say(event, tell), chosen.offlineMinutes * MINUTE_MS));
  }
}

async function say(event, tell) {
  const { eventType, deviceId, description, eventId } = event;
  const name = event.deviceName ?? (deviceId ? await get(`/devices/${deviceId}`).then((device) => device.name, () => "") : "");
  const link = eventType === "approval_requested" ? "#/approvals" : deviceId ? `#/device/${deviceId}` : "#/webhooks";
  const text = textOf(event, name, description);
  tell(text, eventType === "approval_requested" ? "info" : "warn", link);
  if (document.hidden && !isQuiet(preferences())) await systemNotice(text, link, eventId ?? `${eventType}:${deviceId}`);
}

function textOf({ eventType }, name, description) {
  if (eventType === "approval_requested") return t("{name} waits for an approval", { name: name || t("A command") });
  if (eventType === "device_offline") return t("{name} has been offline for {minutes} min", { name, minutes: preferences().offlineMinutes });
  return serviceText(description) || [name, word(eventType)].filter(Boolean).join(": ");
}

/* All tabs hear the same event; the tag lets the system show it once. */
async function systemNotice(text, link, tag) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const worker = await navigator.serviceWorker?.getRegistration("/");
  if (worker) await worker.showNotification("Latchboard", { body: text, tag, icon: "/dashboard/icon-192.png", data: { link } });
}

export function isQuiet({ quietFrom, quietTo }, at = new Date()) {
  if (!quietFrom || !quietTo) return false;
  const now = `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
  return quietFrom <= quietTo ? quietFrom <= now && now < quietTo : now >= quietFrom || now < quietTo;
}
