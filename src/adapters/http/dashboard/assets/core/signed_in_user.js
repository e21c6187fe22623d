/* The signed-in person, and which controls are shown. The service decides what is allowed. */

import { get } from "./api.js";
import { signal } from "./html.js";
import { t } from "./i18n.js";

/* /auth/me, or null. */
export const me = signal(null);

export const isAdmin = () => me.value?.role === "Owner" || me.value?.role === "Admin";
export const isOwner = () => me.value?.role === "Owner";
export const mayEdit = () => me.value !== null && me.value.role !== "Viewer";

let known = null; // promise of the display names

/* Returns a function from a source (`user:usr_…`, `apikey:key_…`) to its display name. Deleted users and keys keep the id.
   All parts of a page share the request, so the end of one part does not end it. */
export function loadNames() {
  known ??= Promise.all([get("/members"), get("/keys")]).then(([members, keys]) => new Map([...members.map(({ userId, name }) => [`user:${userId}`, name]), ...keys.map(({ keyId, name }) => [`apikey:${keyId}`, name])]));
  known.catch(forgetNames);
  return known.then((names) => (source) => names.get(source) ?? nameOf(source));
}

const nameOf = (source) => (source.startsWith("provisioning:") ? t("a provisioning code") : source.replace(/^(rule|schedule):.*/, "$1"));

export function forgetNames() {
  known = null;
}
