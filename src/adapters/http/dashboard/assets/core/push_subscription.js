/* Web Push: whether this browser can be told while no tab is open, and its subscription at its push service. */

import { t } from "./i18n.js";

const KEPT = "latchboard.pushChannel"; // the channel of this browser

export const canPush = () => "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;
export const ownChannel = () => localStorage.getItem(KEPT);
export const keepOwnChannel = (channelId) => localStorage.setItem(KEPT, channelId);

/* iPhones and iPads push to installed pages only. */
export const needsInstall = () => /iPhone|iPad/.test(navigator.userAgent) && !window.matchMedia("(display-mode: standalone)").matches;

const refused = (text) => Object.assign(new Error(text), { details: [] });

/* Returns the subscription as JSON. An older one ends: the service removes its channel when it is told so. */
export async function subscribe(applicationServerKey) {
  if ((await Notification.requestPermission()) !== "granted") throw refused(t("The browser does not allow notifications of this page. Allow them in its settings, then try again."));
  const { pushManager } = await navigator.serviceWorker.ready;
  await (await pushManager.getSubscription())?.unsubscribe();
  try {
    return (await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey })).toJSON();
  } catch {
    throw refused(t("This browser reached no push service. Some browsers have none, or switch it off."));
  }
}

export async function unsubscribe() {
  localStorage.removeItem(KEPT);
  const worker = await navigator.serviceWorker?.getRegistration("/");
  await (await worker?.pushManager?.getSubscription())?.unsubscribe();
}

/* Where the browser offers to install the page: it asks once, when the person presses our button. */
let offer = null;
window.addEventListener("beforeinstallprompt", (event) => {
  event.preventDefault();
  offer = event;
});

export const canInstall = () => offer !== null;

export async function install() {
  await offer?.prompt();
  offer = null;
}
