/*
 * Calls to the service as the signed-in user.
 *
 * The access token stays in this tab's memory. The refresh token is in a cookie that no script can read. All tabs share it, and it can
 * be used once: if two tabs used it, the service would treat it as stolen and sign both out. So only one tab at a time renews.
 * localStorage keeps only the fact that somebody has signed in, so that a tab learns of a sign-out in another one.
 */

import { signal } from "./html.js";
import { language, serviceText } from "./i18n.js";

const SESSION = "/dashboard/session";
const SIGNED_IN = "latchboard.signedIn";
const EARLY_MS = 60_000;

let access = null;
let renewAt = 0;
let renewing = null;
const listeners = new Set();

/* Whether the service refuses every page because this person must set up a second factor first. */
export const lacksFactor = signal(false);

class Refusal extends Error {
  constructor(status, body) {
    super(body.message ?? `The service responded with status ${status}.`);
    this.status = status;
    this.code = body.error ?? "UNKNOWN";
    this.details = (body.details ?? []).map(({ field, message }) => ({ field, message: serviceText(message) }));
  }
}

/* Calls `listener(accessToken)` after each renewal, and with null when the session ends. Returns a function that unsubscribes. */
export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/* The page after a sign-in at the identity provider: the cookie is there, and this tab must use it. */
export const resumeFromProvider = () => localStorage.setItem(SIGNED_IN, "provider");
export const mayResume = () => localStorage.getItem(SIGNED_IN) !== null;

/* Returns null, or for a person with a second factor {challengeToken, methods}, with which `completeSignIn` does the second step. */
export async function signIn(email, password) {
  const { answer } = await sendSession("login", { email, password });
  if (answer.secondFactorRequired) return answer;
  localStorage.setItem(SIGNED_IN, "yes");
  keep(answer);
  return null;
}

/* `factor`: see `factorOf`, or {passkey}. */
export async function completeSignIn(challengeToken, factor) {
  const { answer } = await sendSession("login/second-factor", { challengeToken, ...factor });
  keep(answer);
}

/* What the browser is to ask a passkey: without a challenge token for a sign-in without password. */
export const passkeyQuestion = (challengeToken) => send("POST", "/auth/login/passkey/options", challengeToken ? { challengeToken } : {}).then(({ answer }) => answer.publicKey);

export async function signInWithPasskey(passkey) {
  const { answer } = await sendSession("login/passkey", { passkey });
  keep(answer);
}

/* {oidc: {name} or null} */
export const signInMethods = () => request(`${SESSION}/methods`, { headers: {} }).then(({ answer }) => answer);

/* Leaves the page for the identity provider, which sends the browser back to `returnTo`. */
export async function signInAtProvider(returnTo) {
  location.assign((await sendSession("oidc/begin", { returnTo })).answer.url);
}

/* What a person typed, as the service wants it: six digits are of the authenticator app, all else is a recovery code. */
export function factorOf(code) {
  const typed = code.replace(/[\s-]/g, "");
  return /^\d{6}$/.test(typed) ? { totp: typed } : { recoveryCode: typed };
}

/* What the holder of a first-run link, or of none, can do: READY, LINK_NEEDED, LINK_EXPIRED or DONE. */
export const firstRunState = (linkToken = "") => sendSession("first-run/state", { token: linkToken }).then(({ answer }) => answer.state);

/* Makes the first account and signs its Owner in. */
export async function makeFirstAccount(values) {
  keep((await sendSession("first-run", values)).answer);
}

/* A link by mail, for a person whose sign-in is throttled because strangers guess. The answer is the same for an unknown email. */
export const requestUnlockLink = (email) => send("POST", "/auth/unlock/request", { email });

/* Calls without a session, of whoever has the link of an invitation. */
export const previewInvitation = (token) => send("POST", "/invitations/preview", { token }).then(({ answer }) => answer);
export const acceptInvitation = (token, name, password) => send("POST", "/invitations/accept", { token, name, password }).then(({ answer }) => answer);

/* Calls without a session, of whoever has an approval link. Only the last one changes something. */
export const previewDecision = (token) => send("POST", "/approval-links/preview", { token }).then(({ answer }) => answer);
export const decisionQuestion = (token) => send("POST", "/approval-links/passkey-options", { token }).then(({ answer }) => answer.publicKey);
export const decideByLink = (token, decision, proof) => send("POST", `/approval-links/${decision.toLowerCase()}`, { token, ...proof }).then(({ answer }) => answer);

export async function signOut() {
  const atProvider = localStorage.getItem(SIGNED_IN) === "provider";
  forget();
  const { answer } = await sendSession("logout");
  if (atProvider && answer.providerSignOutUrl) location.assign(answer.providerSignOutUrl);
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

/* Asks whether this person must set up a second factor first. */
export async function checkFactor() {
  const { required, enabled } = await get("/auth/second-factor");
  lacksFactor.value = required && !enabled;
  return lacksFactor.value;
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
  options.headers["Accept-Language"] = language();
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
  if (response.status === 403 && answer.error === "SECOND_FACTOR_REQUIRED") lacksFactor.value = true;
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
  localStorage.setItem(SIGNED_IN, localStorage.getItem(SIGNED_IN) ?? "yes");
  for (const listener of listeners) listener(access);
}

function forget() {
  access = null;
  localStorage.removeItem(SIGNED_IN);
  for (const listener of listeners) listener(null);
}

window.addEventListener("storage", ({ key, newValue }) => {
  if (key === SIGNED_IN && newValue === null) forget();
});

localStorage.removeItem("latchboard.refreshToken"); // releases before the cookie kept the token here
