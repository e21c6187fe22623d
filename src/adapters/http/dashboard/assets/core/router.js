/* The place in the page: `#/device/dev_…/rules?state=OFFLINE`. */

import { signal } from "./html.js";

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "devices", ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { name, rest, query: Object.fromEntries(new URLSearchParams(query)) };
}

export const place = signal(read());
window.addEventListener("hashchange", () => {
  place.value = read();
});

export const go = (path) => {
  location.hash = `#/${path}`;
};

/* Goes to another page in the place of the present one in the history. */
export function replace(path) {
  history.replaceState(null, "", `#/${path}`);
  place.value = read();
}

/* Changes the query without a new entry in the history. Empty values are left out. */
export function setQuery(changes) {
  const { name, rest, query } = read();
  const next = Object.fromEntries(Object.entries({ ...query, ...changes }).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const text = new URLSearchParams(next).toString();
  history.replaceState(null, "", `#/${[name, ...rest].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`);
  place.value = { name, rest, query: next };
}
