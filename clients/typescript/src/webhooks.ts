/** Checks a webhook request by its Standard Webhooks signature, and gives its event, in whichever format it was sent. */
import { VerificationError } from "./errors.js";
import type { Event } from "./types.js";

/** `deliveryId` differs in each attempt; `event.eventId` is the same in all: use it to process an event once. */
export interface Delivery {
  deliveryId: string;
  event: Event;
}

type Headers_ = Headers | Record<string, string | string[] | undefined>;

/** `body`: the received bytes, before any parsing. Throws VerificationError. */
export async function verifyWebhook(secret: string, body: Uint8Array | string, headers: Headers_, toleranceSeconds = 300): Promise<Delivery> {
  const sentAt = header(headers, "webhook-timestamp");
  if (!/^\d+$/.test(sentAt) || Math.abs(Date.now() / 1000 - Number(sentAt)) > toleranceSeconds)
    throw new VerificationError(`webhook-timestamp "${sentAt}" is missing or too far from now. Check this machine's clock.`);
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const expected = await sign(secret, header(headers, "webhook-id"), sentAt, bytes);
  if (!header(headers, "webhook-signature").split(" ").some((given) => isEqual(given, expected)))
    throw new VerificationError("The signature does not fit. Check the secret, and that the body is verified as it was received.");
  const fields = JSON.parse(new TextDecoder().decode(bytes));
  // The body of a binary CloudEvent is the event itself; the other formats have it in `data`.
  return { deliveryId: header(headers, "x-service-delivery"), event: "eventId" in fields ? fields : fields.data };
}

/** The `webhook-signature` for these bytes. */
export async function sign(secret: string, id: string, sentAt: string, body: Uint8Array): Promise<string> {
  const start = new TextEncoder().encode(`${id}.${sentAt}.`);
  const signed = new Uint8Array(start.length + body.length);
  signed.set(start);
  signed.set(body, start.length);
  const key = await crypto.subtle.importKey("raw", decoded(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const digest = new Uint8Array(await crypto.subtle.sign("HMAC", key, signed));
  return "v1," + btoa(String.fromCharCode(...digest));
}

function decoded(secret: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(secret.replace(/^whsec_/, "")), (one) => one.charCodeAt(0));
  } catch {
    throw new VerificationError("The secret is not `whsec_` and base64. Copy it from the response that created it.");
  }
}

function header(headers: Headers_, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  const found = Object.entries(headers).find(([one]) => one.toLowerCase() === name)?.[1];
  return String(found ?? "");
}

/** In a time that does not depend on where the two differ. */
function isEqual(left: string, right: string): boolean {
  let difference = left.length ^ right.length;
  for (let at = 0; at < left.length && at < right.length; at++) difference |= left.charCodeAt(at) ^ right.charCodeAt(at);
  return difference === 0;
}
