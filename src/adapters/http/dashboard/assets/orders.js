/* Sends a command and follows its execution until the device reports the result. */

import { actName, call, get } from "./api.js";
import { fill, h } from "./dom.js";

const WAIT_S = 10;
const LOOK_EVERY_MS = 1_000;
const LOOK_FOR_MS = 120_000;
const FINAL = new Set(["DONE", "FAILED", "TIMED_OUT", "EXPIRED"]);
const SAID = {
  QUEUED: ["waits for the device to come online", "dim"],
  SENT: ["sent; no answer from the device yet", "dim"],
  ACKED: ["the device is working on it", "dim"],
  DONE: ["done, confirmed by the device", "good"],
  FAILED: ["failed, reported by the device", "bad"],
  TIMED_OUT: ["the device did not answer", "bad"],
  EXPIRED: ["not run: the device did not receive it in time", "bad"],
};

/* `body`: {cmd, params?, ttlSeconds?}. The result is written into `said`. */
export async function order(deviceId, body, said, signal) {
  say(said, "…", "dim");
  try {
    const answer = await call("POST", `/devices/${deviceId}/command`, { ...body, waitSeconds: WAIT_S }, { signal, key: actName() });
    if (answer.approvalRequired) return say(said, "waits for approval", "warn");
    say(said, ...told(answer));
    if (!FINAL.has(answer.status)) follow(deviceId, answer.executionId, said, signal);
    return undefined;
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    return say(said, error.message, "bad");
  }
}

async function follow(deviceId, executionId, said, signal) {
  const until = Date.now() + LOOK_FOR_MS;
  while (Date.now() < until && !signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    const now = await get(`/devices/${deviceId}/executions/${executionId}`, signal).catch(() => null);
    if (!now) continue;
    say(said, ...told(now));
    if (FINAL.has(now.status)) return;
  }
}

function told({ status, result }) {
  const [text, kind] = SAID[status] ?? [status, "dim"];
  const reason = result && (result.code ?? result.error);
  return [reason ? `${text}: ${reason}` : text, kind];
}

function say(said, text, kind) {
  fill(said, h("span", { class: kind }, text));
}
