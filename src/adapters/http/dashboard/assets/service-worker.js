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

/* A message of the service, which only this browser can read. Browsers want each one shown. */
self.addEventListener("push", (event) => {
  event.waitUntil(show(event.data).catch(() => self.registration.showNotification("Latchboard")));
});

async function show(data) {
  const { title, body, link, tag } = data.json();
  await self.registration.showNotification(title, { body, tag, icon: "/dashboard/icon-192.png", badge: "/dashboard/icon-192.png", data: { link } });
}

/* A notification opens its page in a tab that is open, or in a new one. It never acts by itself. */
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const url = `${self.location.origin}/${new URL(event.notification.data?.link ?? "", self.location.origin).hash}`;
  const open = self.clients.matchAll({ type: "window" }).then(([tab]) => (tab ? tab.focus().then(() => tab.navigate(url)) : self.clients.openWindow(url)));
  event.waitUntil(open);
});
