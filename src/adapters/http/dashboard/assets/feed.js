/*
 * The live feed. It reconnects automatically and resumes with the cursor of the last message.
 *
 *   const feed = new Feed({ types: "relay_changed" }, (message) => …, (live) => …);
 *   feed.close();
 */

import { onSession, token } from "./api.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const LOOK_EVERY_MS = 30_000;
const EXPIRED = 4001;
const REVOKED = 4003;

export class Feed {
  #filters;
  #hear;
  #state;
  #socket = null;
  #cursor = null;
  #pause = FIRST_PAUSE_MS;
  #timer = null;
  #looking = null;
  #unhear = null;
  #closed = false;

  constructor(filters, hear, state = () => {}) {
    this.#filters = filters;
    this.#hear = hear;
    this.#state = state;
    this.#connect();
    // A page that only receives events sends no requests, so the token is renewed here before it expires.
    this.#looking = setInterval(() => token().catch(() => {}), LOOK_EVERY_MS);
    this.#unhear = onSession((bearer) => (bearer ? this.#present(bearer) : this.close()));
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#looking);
    this.#unhear();
    this.#socket?.close();
  }

  async #connect() {
    let bearer;
    try {
      bearer = await token();
    } catch {
      return this.#again();
    }
    if (this.#closed) return undefined;
    const query = new URLSearchParams(this.#cursor ? { ...this.#filters, cursor: this.#cursor } : this.#filters);
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/ws?${query}`);
    this.#socket = socket;
    socket.onopen = () => this.#present(bearer);
    socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
    socket.onclose = ({ code }) => this.#lost(code);
    return undefined;
  }

  #take(message) {
    if (message.cursor) this.#cursor = message.cursor;
    if (message.type === "initial_state") {
      this.#pause = FIRST_PAUSE_MS;
      this.#state(true);
    } else if (message.type === "resync") {
      this.#cursor = null;
    }
    this.#hear(message);
  }

  #lost(code) {
    if (this.#closed) return;
    this.#state(false);
    if (code === REVOKED) this.close();
    else if (code === EXPIRED) token().then(() => this.#again(), () => this.#again());
    else this.#again();
  }

  #again() {
    if (this.#closed) return;
    this.#timer = setTimeout(() => this.#connect(), this.#pause * (0.75 + Math.random() / 2));
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  #present(bearer) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "auth", token: bearer }));
  }
}
