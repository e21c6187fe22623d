/*
 * Calls to the service as the signed-in user.
 *
 * The access token stays in this tab's memory. The refresh token is in a cookie that no script can read. All tabs share it, and it can
 * be used once: if two tabs used it, the service would treat it as stolen and sign both out. So only one tab at a time renews.
 * localStorage keeps only the fact that somebody has signed in, so that a tab learns of a sign-out in another one.
 */

const SESSION = "/dashboard/session";
const SIGNED_IN = "latchboard.signedIn";
const EARLY_MS = 60_000;

let access = null;
let renewAt = 0;
let renewing = null;
const listeners = new Set();

export class Refusal extends Error {
  constructor(status, body) {
    super(body.message ?? `The service responded with status ${status}.`);
    this.status = status;
    this.code = body.error ?? "UNKNOWN";
    this.details = body.details ?? [];
  }
}

/* Calls `listener(accessToken)` after each renewal, and with null when the session ends. Returns a function that unsubscribes. */
export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const mayResume = () => localStorage.getItem(SIGNED_IN) !== null;

/* Returns null, or for a person with a second factor the challenge token, with which `completeSignIn` does the second step. */
export async function signIn(email, password) {
  const { answer } = await sendSession("login", { email, password });
  if (answer.secondFactorRequired) return answer.challengeToken;
  keep(answer);
  return null;
}

export async function completeSignIn(challengeToken, code) {
  const { answer } = await sendSession("login/second-factor", { challengeToken, ...factorOf(code) });
  keep(answer);
}

/* What a person typed, as the service wants it: six digits are of the authenticator app, all else is a recovery code. */
export function factorOf(code) {
  const typed = code.replace(/[\s-]/g, "");
  return /^\d{6}$/.test(typed) ? { totp: typed } : { recoveryCode: typed };
}

/* A link by mail, for a person whose sign-in is throttled because strangers guess. The answer is the same for an unknown email. */
export const requestUnlockLink = (email) => send("POST", "/auth/unlock/request", { email });

export async function signOut() {
  forget();
  await sendSession("logout");
}

export async function token() {
  if (!access || Date.now() > renewAt) await renew();
  return access;
}

/* Returns the JSON of the response. Throws a Refusal with the service's error. */
export async function call(method, path, body, { signal, key } = {}) {
  return (await sendAgain(method, path, body, signal, key)).answer;
}

/* If the access token is no longer valid, once more with a new one. */
async function sendAgain(method, path, body, signal, key) {
  try {
    return await send(method, path, body, await token(), signal, key);
  } catch (error) {
    if (error.status !== 401 || error.code === "INVALID_CREDENTIALS") throw error;
    access = null;
    return send(method, path, body, await token(), signal, key);
  }
}

export const get = (path, signal) => call("GET", path, undefined, { signal });

/* A page of a plain array: {data, next, total}. `next` is the path of the next page, from the `Link` header; null on the last. */
export async function getPage(path, signal) {
  const { answer, headers } = await sendAgain("GET", path, undefined, signal);
  const link = /<\/api\/v1([^>]+)>; rel="next"/.exec(headers.get("Link") ?? "");
  const total = headers.get("X-Total-Count");
  return { data: answer, next: link ? link[1] : null, total: total === null ? null : Number(total) };
}

/* Downloads a file of the API. A link cannot carry the token, so the file is fetched first. */
export async function download(path, name) {
  const response = await fetch(`/api/v1${path}`, { headers: { Authorization: `Bearer ${await token()}` } });
  if (!response.ok) throw new Refusal(response.status, await response.json().catch(() => ({})));
  saveFile(await response.blob(), name);
}

export function saveFile(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function send(method, path, body, bearer, signal, key) {
  const headers = {};
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (key) headers["Idempotency-Key"] = key;
  return request(`/api/v1${path}`, { method, headers, signal }, body);
}

/* The service accepts these calls only with a header that pages of other sites cannot send. */
function sendSession(action, body) {
  return request(`${SESSION}/${action}`, { method: "POST", headers: { "X-CSRF-Protection": "1" } }, body);
}

async function request(url, options, body) {
  options.headers.Accept = "application/json";
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { error: "UNREACHABLE", message: "The service does not answer. Check the network, and whether the service runs." });
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, answer);
  return { answer, headers: response.headers };
}

function renew() {
  renewing ??= alone(async () => {
    if (!mayResume()) throw new Refusal(401, { error: "UNAUTHENTICATED", message: "Please sign in." });
    try {
      keep((await sendSession("refresh")).answer);
    } catch (error) {
      if (error.status === 401) forget();
      throw error;
    }
  }).finally(() => {
    renewing = null;
  });
  return renewing;
}

/* Browsers offer locks only over TLS or on localhost. Elsewhere two tabs may renew at the same time, and one signs in again. */
function alone(work) {
  return navigator.locks ? navigator.locks.request("latchboard.renew", work) : work();
}

function keep({ accessToken, expiresIn }) {
  access = accessToken;
  renewAt = Date.now() + expiresIn * 1000 - EARLY_MS;
  localStorage.setItem(SIGNED_IN, "yes");
  for (const listener of listeners) listener(access);
}

function forget() {
  access = null;
  localStorage.removeItem(SIGNED_IN);
  for (const listener of listeners) listener(null);
}

window.addEventListener("storage", ({ key, newValue }) => {
  if (key === SIGNED_IN && newValue === null) {
    access = null;
    for (const listener of listeners) listener(null);
  }
});

localStorage.removeItem("latchboard.refreshToken"); // releases before the cookie kept the token here
