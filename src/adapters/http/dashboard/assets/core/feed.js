/*
 * The live feed. It reconnects automatically and resumes with the cursor of the last message.
 *
 * A dead connection looks like a quiet one, so the page asks: after `ASK_AFTER_MS` of silence it sends a ping, and after `DEAD_AFTER_MS` it
 * gives the connection up. `heardAt` is when anything last arrived.
 *
 *   const feed = new Feed({ types: "relay_changed" }, { message: (message) => …, state: ({ live, heardAt }) => … });
 *   feed.close();
 */

import { checkFactor, onSession, token } from "./api.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const RENEW_EVERY_MS = 30_000;
const LOOK_EVERY_MS = 2_000;
const ASK_AFTER_MS = 10_000;
const DEAD_AFTER_MS = 20_000;
const EXPIRED = 4001;
const REVOKED = 4003;

export class Feed {
  #filters;
  #on;
  #socket = null;
  #cursor = null;
  #pause = FIRST_PAUSE_MS;
  #retry = null;
  #timers = [];
  #unhear = null;
  #closed = false;
  #live = false;
  #heardAt = 0;
  #askedAt = 0;

  constructor(filters, { message, state = () => {} }) {
    this.#filters = filters;
    this.#on = { message, state };
    this.#connect();
    // A page that only receives events sends no requests, so the token is renewed here before it expires.
    this.#timers = [setInterval(() => token().catch(() => {}), RENEW_EVERY_MS), setInterval(() => this.#look(), LOOK_EVERY_MS)];
    this.#unhear = onSession((bearer) => (bearer ? this.#present(bearer) : this.close()));
    window.addEventListener("offline", this.#lookNow);
    window.addEventListener("online", this.#lookNow);
    document.addEventListener("visibilitychange", this.#lookNow);
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#timers.forEach(clearInterval);
    this.#unhear();
    window.removeEventListener("offline", this.#lookNow);
    window.removeEventListener("online", this.#lookNow);
    document.removeEventListener("visibilitychange", this.#lookNow);
    this.#socket?.close();
  }

  /* The network has changed, or the tab was asleep: ask at once, or connect at once. */
  #lookNow = () => {
    if (this.#closed || document.hidden) return;
    if (this.#live) this.#ask();
    else if (this.#retry !== null && navigator.onLine) this.#again(0);
  };

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
    this.#heardAt = Date.now();
    socket.onopen = () => this.#present(bearer);
    socket.onmessage = ({ data }) => this.#take(socket, JSON.parse(data));
    socket.onclose = ({ code }) => this.#lost(socket, code);
    return undefined;
  }

  #take(socket, message) {
    if (socket !== this.#socket) return;
    this.#heardAt = Date.now();
    this.#askedAt = 0;
    if (message.cursor) this.#cursor = message.cursor;
    if (message.type === "initial_state") {
      this.#pause = FIRST_PAUSE_MS;
      this.#live = true;
    } else if (message.type === "resync") {
      this.#cursor = null;
    }
    this.#tell();
    if (message.type !== "pong" && message.type !== "authenticated") this.#on.message(message);
  }

  #look() {
    const silent = Date.now() - this.#heardAt;
    if (this.#socket === null || this.#closed) return;
    if (silent > DEAD_AFTER_MS || (this.#askedAt && Date.now() - this.#askedAt > DEAD_AFTER_MS - ASK_AFTER_MS)) this.#lost(this.#socket, 0);
    else if (this.#live && silent > ASK_AFTER_MS) this.#ask();
  }

  #ask() {
    if (this.#askedAt || this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#askedAt = Date.now();
    this.#socket.send(JSON.stringify({ type: "ping" }));
  }

  #lost(socket, code) {
    if (this.#closed || socket !== this.#socket) return;
    this.#socket = null;
    this.#live = false;
    this.#askedAt = 0;
    socket.close();
    this.#tell();
    if (code === REVOKED) this.close();
    else if (code === EXPIRED) checkFactor().then((lacks) => (lacks ? this.close() : this.#again()), () => this.#again());
    else this.#again();
  }

  #again(pause = this.#pause * (0.75 + Math.random() / 2)) {
    if (this.#closed) return;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => {
      this.#retry = null;
      this.#connect();
    }, pause);
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
  }

  #present(bearer) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "auth", token: bearer }));
  }

  #tell() {
    this.#on.state({ live: this.#live, heardAt: this.#heardAt });
  }
}
