/* The service worker: the offline page, and notifications also while no tab is open. */

const WORKER = "/dashboard/service-worker.js";

/* The policy of the page lets nothing become a script's address but this one constant. */
const policy = window.trustedTypes?.createPolicy("latchboard-worker", {
  createScriptURL: (url) => {
    if (url === WORKER) return url;
    throw new TypeError(`${url} is not the worker of this page`);
  },
});

export async function registerWorker() {
  if (!("serviceWorker" in navigator)) return null; // browsers offer workers only over TLS or on localhost
  return navigator.serviceWorker.register(policy ? policy.createScriptURL(WORKER) : WORKER, { scope: "/" }).catch(() => null);
}
