/*
 * Sends a command and follows its life until the device reports the result. The page shows what the device said, never what was hoped.
 *
 *   const [life, send] = useCommand(device, channel);      life: {kind, text, cmd, at, until?} or null
 */

import { call, get } from "./api.js";
import { channelBody } from "./channels.js";
import { useEffect, useRef, useState } from "./html.js";
import { errorText, t, word } from "./i18n.js";
import { countWaiting, useEvents } from "./live_data_hooks.js";

const TTL_S = 60;
const LOOK_EVERY_MS = 700;
const LOOK_FOR_MS = 180_000;
export const FINAL = new Set(["DONE", "FAILED", "TIMED_OUT", "EXPIRED", "CANCELLED"]);
export const KINDS = { QUEUED: "wait", SENT: "wait", ACKED: "wait", DONE: "good", FAILED: "bad", TIMED_OUT: "bad", EXPIRED: "bad", CANCELLED: "off" };

/* An idempotency key: a request that is repeated after a lost response is not executed twice. */
function requestKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function lifeText(status, isOnline, left) {
  const said = {
    QUEUED: isOnline ? t("Waiting to be sent") : left > 0 ? t("Offline: it will be delivered if the device returns within {left} s", { left }) : t("Offline: its time is over"),
    SENT: t("Sent; no answer from the device yet"),
    ACKED: t("The device is working on it"),
    DONE: t("Done, confirmed by the device"),
    FAILED: t("The device reported a failure"),
    TIMED_OUT: t("The device did not answer"),
    EXPIRED: t("Not run: the device did not receive it in time"),
    CANCELLED: t("Called off before it was sent"),
  };
  return said[status] ?? word(status);
}

export function reasonOf(result) {
  return (result && (result.code ?? result.error)) || "";
}

/* `channel`: the number of the one that the commands are for. */
export function useCommand(device, channel = 1) {
  const [life, setLife] = useState(null);
  const held = useRef({ run: 0, look: null });
  const { deviceId } = device;
  useEffect(() => () => {
    held.current.run += 1;
    clearTimeout(held.current.timer);
  }, [deviceId]);
  useEvents((event) => {
    if (event.deviceId === deviceId && /^command_/.test(event.eventType)) held.current.look?.();
  });

  /* Throws the service's refusal if `strict`, so that a form can show it; else it is part of the life. */
  const send = async (body, { strict = false } = {}) => {
    const run = (held.current.run += 1);
    const mine = (next) => held.current.run === run && setLife(next);
    const sentAt = Date.now();
    const shared = { cmd: body.cmd, at: sentAt };
    mine({ ...shared, kind: "wait", status: device.isOnline ? "SENDING" : "QUEUED", until: sentAt + (body.ttlSeconds ?? TTL_S) * 1000 });
    let answer;
    try {
      answer = await call("POST", `/devices/${deviceId}/command`, { ...channelBody(channel), ...body }, { key: requestKey() });
    } catch (error) {
      mine(strict ? null : { ...shared, kind: "bad", text: errorText(error) });
      if (strict) throw error;
      return;
    }
    if (answer.approvalRequired) {
      countWaiting();
      mine({ ...shared, kind: "warn", text: t("Waits for approval"), approvalId: answer.approvalId });
      return;
    }
    follow(answer.executionId, shared, mine, () => held.current.run === run, sentAt);
  };

  const follow = async (executionId, shared, mine, current, sentAt) => {
    while (current() && Date.now() < sentAt + LOOK_FOR_MS) {
      const now = await get(`/devices/${deviceId}/executions/${executionId}`).catch(() => null);
      if (!current()) return;
      if (now) mine({ ...shared, status: now.status, kind: KINDS[now.status] ?? "wait", reason: reasonOf(now.result), until: Date.parse(now.expiresAt), result: now.result, tookMs: FINAL.has(now.status) && now.finishedAt ? Date.parse(now.finishedAt) - Date.parse(now.createdAt) : null });
      if (now && FINAL.has(now.status)) return;
      await new Promise((resolve) => {
        held.current.look = resolve;
        held.current.timer = setTimeout(resolve, LOOK_EVERY_MS);
      });
    }
  };
  return [life, send, () => setLife(null)];
}
