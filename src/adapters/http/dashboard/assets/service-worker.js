/* Shows a page of its own when the service cannot be reached. It keeps nothing else: what the page shows of devices is never old. */

const KEPT = "latchboard-offline-1";
const OFFLINE = ["/dashboard/offline.html", "/dashboard/styles/tokens.css", "/dashboard/styles/base.css", "/dashboard/icon.svg"];

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(OFFLINE)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const old = caches.keys().then((names) => Promise.all(names.filter((name) => name !== KEPT).map((name) => caches.delete(name))));
  event.waitUntil(old.then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => caches.match(OFFLINE[0])));
  else if (OFFLINE.includes(new URL(request.url).pathname)) event.respondWith(fetch(request).catch(() => caches.match(request)));
});

/* A notification opens its page in a tab that is open, or in a new one. It never acts by itself. */
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const url = new URL(`/${event.notification.data?.link ?? ""}`, self.location.origin).href;
  const open = self.clients.matchAll({ type: "window" }).then(([tab]) => (tab ? tab.focus().then(() => tab.navigate(url)) : self.clients.openWindow(url)));
  event.waitUntil(open);
});
