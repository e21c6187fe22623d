/** The live feed. It connects again by itself and resumes after the last event, without a gap and without a repetition. */
import { ApiError, LatchboardError } from "./errors.js";
import { backoffMs, sleep, type Http } from "./http.js";
import type { Event, FeedEvent } from "./types.js";

export interface FeedOptions {
  types?: Event["type"][];
  deviceId?: string;
  /** Resume after the event that it was stored with. */
  cursor?: string;
  /** A connection that is silent for so long is asked for a sign of life, and given up after as long again; 20 by default. */
  watchdogSeconds?: number;
  /** Told of each interruption before the pause. */
  onInterruption?: (reason: string, pauseMs: number) => void;
}

const REMEMBERED_IDS = 20_000;
const FINAL: Record<number, [number, string]> = {
  4001: [401, "The credentials are missing, invalid or expired."],
  4003: [403, "The key was disabled or deleted, or the membership removed."],
  1008: [400, "The feed refused the query: check `types` and `deviceId`."],
};

/** An async iterable of events. `cursor` is that of the newest one given: store it to resume after a restart of your program. */
export class Feed implements AsyncIterableIterator<FeedEvent> {
  cursor: string | undefined;
  private socket: WebSocket | undefined;
  private waiting: MessageEvent["data"][] = [];
  private closed: { code: number; reason: string } | undefined;
  private wake = () => {};
  private failures = 0;
  private readonly seen = new Set<string>();
  private readonly ended = new AbortController();
  private watchdog: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly http: Http,
    private readonly options: FeedOptions,
  ) {
    this.cursor = options.cursor;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next event. Throws ApiError when connecting again would not help. */
  async next(): Promise<IteratorResult<FeedEvent>> {
    while (!this.ended.signal.aborted) {
      if (this.socket === undefined && !this.closed) await this.connect();
      if (this.waiting.length === 0 && !this.closed) await new Promise<void>((resolve) => (this.wake = resolve));
      const message = this.waiting.shift();
      const event = message === undefined ? undefined : this.accept(String(message));
      if (event) return { value: event, done: false };
      if (this.waiting.length === 0 && this.closed) await this.recover(this.closed);
    }
    return { value: undefined, done: true };
  }

  /** End the feed; a waiting `next` is done. */
  close(): void {
    this.ended.abort();
    this.drop();
    this.wake();
  }

  async return(): Promise<IteratorResult<FeedEvent>> {
    this.close();
    return { value: undefined, done: true };
  }

  private async connect(): Promise<void> {
    const { types = [], deviceId } = this.options;
    const query = new URLSearchParams();
    if (types.length > 0) query.set("types", types.join(","));
    if (deviceId) query.set("deviceId", deviceId);
    if (this.cursor) query.set("cursor", this.cursor);
    const { apiKey, webSocket = globalThis.WebSocket } = this.http.options;
    if (!webSocket) throw new LatchboardError("There is no WebSocket here. Use Node.js 22, or pass `webSocket` of the package `ws`.");
    const auth = { type: "auth", ...(apiKey === undefined ? { token: await this.http.token() } : { apiKey }) };
    if (this.ended.signal.aborted) return;
    const socket = new webSocket(`${this.http.url.replace(/^http/, "ws")}/api/v1/ws?${query}`);
    this.socket = socket;
    socket.onopen = () => socket.send(JSON.stringify(auth));
    socket.onmessage = (message) => this.socket === socket && this.receive(message.data);
    socket.onclose = ({ code, reason }) => this.socket === socket && this.lose(code, reason);
    socket.onerror = () => {}; // a close follows
    this.watch();
  }

  private receive(data: MessageEvent["data"]): void {
    this.failures = 0;
    this.watch();
    this.waiting.push(data);
    this.wake();
  }

  private lose(code: number, reason: string): void {
    this.drop();
    this.closed = { code, reason };
    this.wake();
  }

  /** Browsers do not show WebSocket pings, so the feed's own message asks for a sign of life. */
  private watch(): void {
    const ms = (this.options.watchdogSeconds ?? 20) * 1000;
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => {
      if (this.socket?.readyState === 1) this.socket.send('{"type": "ping"}');
      this.watchdog = setTimeout(() => this.lose(1006, "no sign of life"), ms);
    }, ms);
  }

  private drop(): void {
    clearTimeout(this.watchdog);
    const socket = this.socket;
    this.socket = undefined;
    if (socket !== undefined && socket.readyState < 2) socket.close();
  }

  private async recover({ code, reason }: { code: number; reason: string }): Promise<void> {
    this.closed = undefined;
    const final = FINAL[code];
    if (final) {
      this.close();
      throw new ApiError(final[0], `FEED_CLOSED_${code}`, `${final[1]} ${reason}`.trim());
    }
    const pause = backoffMs(++this.failures);
    this.options.onInterruption?.(`${code} ${reason}`.trim(), pause);
    await sleep(pause, this.ended.signal).catch(() => {});
  }

  /** The event of a message; undefined for one that was seen before, and for messages that are no events. */
  private accept(message: string): FeedEvent | undefined {
    const { cursor, ...fields } = JSON.parse(message);
    this.cursor = cursor ?? this.cursor;
    if (fields.type === "initial_state" || fields.type === "resync") return fields;
    if (fields.eventId === undefined || this.seen.has(fields.eventId)) return undefined;
    this.seen.add(fields.eventId);
    if (this.seen.size > REMEMBERED_IDS) this.seen.delete(this.seen.values().next().value as string);
    return fields;
  }
}
