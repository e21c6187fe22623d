/*
 * Calls to the service as the person who is signed in.
 *
 * The access token lives in this tab's memory; the refresh token is shared by all tabs, since it is good for one use: two tabs that
 * used the same one would look like a thief, and both would be signed out. So only one tab at a time renews.
 */

const KEPT = "latchboard.refreshToken";
const EARLY_MS = 60_000;

let access = null;
let renewAt = 0;
let renewing = null;
const listeners = new Set();

export class Refusal extends Error {
  constructor(status, body) {
    super(body.message ?? `The service answered ${status}.`);
    this.status = status;
    this.code = body.error ?? "UNKNOWN";
    this.details = body.details ?? [];
  }
}

/* `listener(accessToken)`: after each renewal; with null when it is over. Gives what ends the listening. */
export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const mayResume = () => localStorage.getItem(KEPT) !== null;

export async function signIn(email, password) {
  const answer = await send("POST", "/auth/login", { email, password });
  keep(answer);
  return answer.user;
}

export async function signOut() {
  const refreshToken = localStorage.getItem(KEPT);
  forget();
  if (refreshToken) await send("POST", "/auth/logout", { refreshToken });
}

export async function token() {
  if (!access || Date.now() > renewAt) await renew();
  return access;
}

/* Gives the answer's JSON. Throws a Refusal with what the service said. */
export async function call(method, path, body, { signal, key } = {}) {
  try {
    return await send(method, path, body, await token(), signal, key);
  } catch (error) {
    if (error.status !== 401 || error.code === "INVALID_CREDENTIALS") throw error;
    access = null;
    return send(method, path, body, await token(), signal, key);
  }
}

export const get = (path, signal) => call("GET", path, undefined, { signal });

/* A name for one act: asked for again after a lost answer, it is not done twice. */
export function actName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function send(method, path, body, bearer, signal, key) {
  const headers = { Accept: "application/json" };
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(`/api/v1${path}`, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { error: "UNREACHABLE", message: "The service does not answer. Is it running, and is the network up?" });
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, answer);
  return answer;
}

function renew() {
  renewing ??= alone(async () => {
    const refreshToken = localStorage.getItem(KEPT);
    if (!refreshToken) throw new Refusal(401, { error: "UNAUTHENTICATED", message: "Please sign in." });
    try {
      keep(await send("POST", "/auth/refresh", { refreshToken }));
    } catch (error) {
      if (error.status === 401) forget();
      throw error;
    }
  }).finally(() => {
    renewing = null;
  });
  return renewing;
}

/* Browsers offer locks only to pages from TLS or this machine; elsewhere tabs may meet, and then one signs in again. */
function alone(work) {
  return navigator.locks ? navigator.locks.request("latchboard.renew", work) : work();
}

function keep({ accessToken, refreshToken, expiresIn }) {
  access = accessToken;
  renewAt = Date.now() + expiresIn * 1000 - EARLY_MS;
  localStorage.setItem(KEPT, refreshToken);
  for (const listener of listeners) listener(access);
}

function forget() {
  access = null;
  localStorage.removeItem(KEPT);
  for (const listener of listeners) listener(null);
}

window.addEventListener("storage", ({ key, newValue }) => {
  if (key === KEPT && newValue === null) {
    access = null;
    for (const listener of listeners) listener(null);
  }
});
