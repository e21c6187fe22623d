/* The current state of all devices: the feed's initial state, updated by its events. One instance per page. */

import { Feed } from "./feed.js";

const SHOWN = "relay_changed,device_online,device_offline,schedule_fired";

export class Fleet {
  devices = new Map();
  live = false;
  #watchers = new Set();
  #feed;

  constructor() {
    this.#feed = new Feed({ types: SHOWN }, (message) => this.#hear(message), (live) => this.#say(live));
  }

  close() {
    this.#feed.close();
  }

  /* `watcher(deviceId or null, message or null)`: null when everything may have changed. Returns a function that unsubscribes. */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  #say(live) {
    this.live = live;
    this.#tell(null, null);
  }

  #tell(deviceId, message) {
    for (const watcher of [...this.#watchers]) watcher(deviceId, message);
  }

  #hear(message) {
    if (message.type === "initial_state") {
      this.devices = new Map(message.devices.map((device) => [device.deviceId, device]));
      return this.#tell(null, null);
    }
    const known = this.devices.get(message.deviceId) ?? {};
    const change = {
      relay_changed: { relay: message.relay },
      device_online: { isOnline: true },
      device_offline: { isOnline: false },
    }[message.type];
    if (change) {
      const lastSeen = new Date(message.timestamp).toISOString();
      this.devices.set(message.deviceId, { ...known, ...change, deviceId: message.deviceId, lastSeen });
    }
    return this.#tell(message.deviceId, message);
  }
}
