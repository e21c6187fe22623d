/* Who stands behind `user:usr_…` and `apikey:key_…` in the log. */

import { get } from "./api.js";

/* Gives a function from a source to what a person calls it. Whoever is gone keeps the id. */
export async function names(signal) {
  const [members, keys] = await Promise.all([get("/members", signal), get("/keys", signal)]);
  const known = new Map([...members.map(({ userId, name }) => [`user:${userId}`, name]), ...keys.map(({ keyId, name }) => [`apikey:${keyId}`, `${name} (API key)`])]);
  return (source) => known.get(source) ?? source.replace(/^(rule|schedule):.*/, "$1");
}
