/*
 * What is live on the page: the connection, and every change in the account.
 *
 * A list loads its data with `useLoad` and says which events change it; it is loaded again after each of them (at most every half second, so
 * that a busy account does not starve it) and after every reconnection. What a device says is put over the loaded data at once: `liveDevice`.
 */

import { get } from "./api.js";
import { withReport } from "./channels.js";
import { Feed } from "./feed.js";
import { signal, useEffect, useRef, useState } from "./html.js";

const TYPES = "relay_changed,state_changed,input_changed,device_online,device_offline,schedule_fired";
const RELOAD_EVERY_MS = 500;

export const connection = signal({ live: false, heardAt: 0, since: Date.now() });
/* Approvals that wait for a decision; null until known. */
export const waitingCount = signal(null);
/* Rises with every (re)connection: what was loaded before may have missed changes. */
export const epoch = signal(0);

const patches = new Map(); // deviceId → signal of what the feed said since the last connection
const listeners = new Set();
let feed = null;

export function startLive() {
  feed = new Feed({ types: TYPES, audit: "true", initialState: "none" }, { message: take, state: note });
}

export function stopLive() {
  feed?.close();
  feed = null;
  patches.clear();
  connection.value = { live: false, heardAt: 0, since: Date.now() };
  waitingCount.value = null;
}

function note({ live, heardAt }) {
  const before = connection.value;
  connection.value = { live, heardAt, since: before.live === live ? before.since : Date.now() };
}

function take(message) {
  if (message.type === "initial_state") {
    for (const patch of patches.values()) patch.value = {};
    epoch.value += 1;
    return;
  }
  const { channel = 1 } = message;
  const change = {
    relay_changed: channel === 1 ? { relayState: message.relay === "ON", changedAt: message.timestamp, changedBy: message.triggeredBy } : {},
    state_changed: {},
    input_changed: {},
    device_online: { isOnline: true },
    device_offline: { isOnline: false },
  }[message.type];
  if (change) {
    const patch = patchOf(message.deviceId);
    const report = { relay_changed: { power: message.relay }, state_changed: { state: message.state, power: undefined }, input_changed: { state: message.action } }[message.type];
    const reports = report ? { ...patch.value.reports, [channel]: { ...patch.value.reports?.[channel], ...report, at: message.timestamp } } : patch.value.reports;
    patch.value = { ...patch.value, ...change, reports, lastSeen: new Date(message.timestamp).toISOString() };
  }
  const event = { ...message, eventType: message.eventType ?? message.type };
  for (const listener of [...listeners]) listener(event);
}

function patchOf(deviceId) {
  if (!patches.has(deviceId)) patches.set(deviceId, signal({}));
  return patches.get(deviceId);
}

/* The device as loaded, with what the feed said since. */
export function liveDevice(device) {
  const { reports = {}, ...patch } = patchOf(device.deviceId).value;
  return { ...device, ...patch, channels: device.channels?.map((each) => withReport(each, reports[each.channel])) };
}

/* Calls `listener(event)` for each event of the account; `event.eventType` is its type. */
export function useEvents(listener) {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const hear = (event) => latest.current(event);
    listeners.add(hear);
    return () => listeners.delete(hear);
  }, []);
}

/*
 * Loads data and keeps it current. `load(signal)` returns a promise; `deps` as of useEffect; `on(event)` tells whether an event changes it.
 * While it loads again the old data stays. Returns {data, error, loading, reload}.
 */
export function useLoad(load, deps, on = () => false) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const held = useRef({ controller: null, timer: null, last: 0 });
  const latest = useRef(load);
  latest.current = load;
  const run = async () => {
    const { current } = held;
    current.controller?.abort();
    clearTimeout(current.timer);
    current.timer = null;
    current.last = Date.now();
    const controller = (current.controller = new AbortController());
    try {
      const data = await latest.current(controller.signal);
      if (!controller.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!controller.signal.aborted) setState((before) => ({ ...before, error, loading: false }));
    }
  };
  useEffect(() => {
    setState((before) => ({ ...before, loading: true }));
    run();
  }, [...deps, epoch.value]);
  useEffect(() => () => {
    held.current.controller?.abort();
    clearTimeout(held.current.timer);
  }, []);
  useEvents((event) => {
    const { current } = held;
    if (!on(event) || current.timer !== null) return;
    current.timer = setTimeout(run, Math.max(150, current.last + RELOAD_EVERY_MS - Date.now()));
  });
  return { ...state, reload: run };
}

export const ofDevice = (deviceId, ...prefixes) => (event) => event.deviceId === deviceId && (!prefixes.length || prefixes.some((prefix) => event.eventType.startsWith(prefix)));
export const ofKind = (...prefixes) => (event) => prefixes.some((prefix) => event.eventType.startsWith(prefix));

const APPROVALS_SHOWN = 100;

export async function countWaiting() {
  const open = await get(`/approvals?status=PENDING&limit=${APPROVALS_SHOWN}`).catch(() => null);
  if (open) waitingCount.value = open.length;
}
