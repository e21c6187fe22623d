/* Display names for `user:usr_…` and `apikey:key_…`. */

import { get } from "./api.js";

/* Returns a function from a source to its display name. Deleted users and keys keep the id. */
export async function names(signal) {
  const [members, keys] = await Promise.all([get("/members", signal), get("/keys", signal)]);
  const known = new Map([...members.map(({ userId, name }) => [`user:${userId}`, name]), ...keys.map(({ keyId, name }) => [`apikey:${keyId}`, `${name} (API key)`])]);
  return (source) => known.get(source) ?? source.replace(/^(rule|schedule):.*/, "$1");
}
