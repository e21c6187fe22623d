/*
 * Passkeys: the browser's part. The service sends and reads the JSON forms of WebAuthn; browsers of 2023 know only buffers, so both are converted
 * here. A person who cancels, and a page that is not at its public address, are told in words.
 */

import { t } from "./i18n.js";

export const canUsePasskeys = () => "PublicKeyCredential" in window && window.isSecureContext;

/* `options`: the service's `publicKey`. Returns the response as JSON. */
export const usePasskey = (options) => asked(() => navigator.credentials.get({ publicKey: readOptions(options) })).then(written);
export const createPasskey = (options) => asked(() => navigator.credentials.create({ publicKey: readOptions(options) })).then(written);

async function asked(call) {
  try {
    return await call();
  } catch (error) {
    const said = { InvalidStateError: t("This device has a passkey for you already."), SecurityError: t("Passkeys work only at the public address of this service (LATCHBOARD_PUBLIC_URL).") };
    throw Object.assign(new Error(said[error.name] ?? t("No passkey was used. Try again, or choose another way.")), { details: [] });
  }
}

function readOptions({ challenge, user, excludeCredentials, allowCredentials, ...rest }) {
  const known = (all) => all?.map(({ id, ...each }) => ({ ...each, id: read(id) }));
  return { ...rest, challenge: read(challenge), user: user && { ...user, id: read(user.id) }, excludeCredentials: known(excludeCredentials), allowCredentials: known(allowCredentials) };
}

function written({ id, rawId, type, response }) {
  const fields = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"].filter((name) => response[name]);
  const parts = Object.fromEntries(fields.map((name) => [name, write(response[name])]));
  return { id, rawId: write(rawId), type, response: { ...parts, transports: response.getTransports?.() } };
}

const read = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
const write = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
