/** One HTTP call: credentials, idempotency key, retries, errors. */
import { ApiError, TransportError } from "./errors.js";
import { IDEMPOTENT } from "./generated/idempotent.js";
import type { Method } from "./types.js";

export interface ClientOptions {
  apiKey?: string;
  /** An access token, or a function that gives one that is valid now. */
  token?: string | (() => string | Promise<string>);
  /** Attempts of a call in all; 4 by default. */
  attempts?: number;
  /** A longer `Retry-After` is thrown at once as the error; 60 by default. */
  longestWaitSeconds?: number;
  /** For one attempt; 40 by default. */
  timeoutSeconds?: number;
  fetch?: typeof fetch;
  /** For Node.js before 22, which has none: `WebSocket` of the package `ws`. */
  webSocket?: typeof WebSocket;
}

export interface RawOptions {
  path?: Record<string, string | number>;
  query?: Record<string, unknown>;
  body?: unknown;
  headers?: Record<string, string>;
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface Page {
  body: unknown;
  /** Null on the last page. */
  cursor: string | null;
}

const LONGEST_PAUSE_MS = 30_000;
const REPEATABLE = new Set<Method>(["get", "put"]);

/** The pause after the attempt with this number, from 1: doubled each time, with jitter. */
export const backoffMs = (attempt: number): number => Math.min(LONGEST_PAUSE_MS, 500 * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2);

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), ms);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}

export class Http {
  readonly url: string;

  constructor(
    url: string,
    readonly options: ClientOptions,
  ) {
    this.url = url.replace(/\/+$/, "");
  }

  async token(): Promise<string | undefined> {
    const { token } = this.options;
    return typeof token === "function" ? await token() : token;
  }

  async call(method: Method, template: string, options: RawOptions = {}): Promise<unknown> {
    return (await this.page(method, template, options)).body;
  }

  /** With the cursor of the page after it, where it is a page of a list. */
  async page(method: Method, template: string, options: RawOptions = {}): Promise<Page> {
    const isIdempotent = method === "post" && IDEMPOTENT.has(template);
    const headers: Record<string, string> = { ...options.headers };
    if (isIdempotent) headers["Idempotency-Key"] = options.idempotencyKey ?? crypto.randomUUID();
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.attempt(method, this.address(template, options), headers, options);
      } catch (error) {
        const pause = this.pauseMs(attempt, isIdempotent || REPEATABLE.has(method), error);
        if (pause === undefined || options.signal?.aborted) throw error;
        await sleep(pause, options.signal);
      }
    }
  }

  private address(template: string, { path = {}, query = {} }: RawOptions): string {
    const filled = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(path[name])));
    const set = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(set.map(([name, value]) => [name, String(value)]));
    return `${this.url}${filled}${set.length > 0 ? `?${search}` : ""}`;
  }

  private async attempt(method: Method, url: string, headers: Record<string, string>, options: RawOptions): Promise<Page> {
    const body = options.body === undefined ? null : JSON.stringify(options.body);
    const over = AbortSignal.timeout((this.options.timeoutSeconds ?? 40) * 1000);
    const { signal, release } = anyOf(over, options.signal);
    const sent = { ...(await this.credentials()), ...headers };
    let response: Response;
    let text: string;
    try {
      response = await (this.options.fetch ?? fetch)(url, { method: method.toUpperCase(), headers: sent, body, signal });
      text = await response.text();
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new TransportError(`${method.toUpperCase()} ${url}: ${String((error as Error).cause ?? error)}`, { cause: error });
    } finally {
      release();
    }
    const link = /<([^>]+)>; rel="next"/.exec(response.headers.get("Link") ?? "");
    const cursor = link ? new URL(link[1]!, this.url).searchParams.get("cursor") : null;
    return { body: read(response, text), cursor };
  }

  private async credentials(): Promise<Record<string, string>> {
    if (this.options.apiKey !== undefined) return { "X-Api-Key": this.options.apiKey };
    const token = await this.token();
    return token === undefined ? {} : { Authorization: `Bearer ${token}` };
  }

  /** Undefined: give up. Only a 429 surely left everything as it was; other ends may come after the change. */
  private pauseMs(attempt: number, repeatable: boolean, error: unknown): number | undefined {
    if (attempt >= (this.options.attempts ?? 4)) return undefined;
    if (error instanceof TransportError) return repeatable ? backoffMs(attempt) : undefined;
    if (!(error instanceof ApiError)) return undefined;
    const transient = [502, 503, 504].includes(error.status) || error.code === "IDEMPOTENCY_IN_PROGRESS";
    if (error.status !== 429 && !(repeatable && transient)) return undefined;
    const pause = error.retryAfterSeconds === undefined ? backoffMs(attempt) : error.retryAfterSeconds * 1000;
    return pause <= (this.options.longestWaitSeconds ?? 60) * 1000 ? pause : undefined;
  }
}

function read(response: Response, text: string): unknown {
  const isJson = /^application\/json\b/.test(response.headers.get("Content-Type") ?? "");
  const body = isJson ? JSON.parse(text) : undefined;
  if (response.ok) return isJson ? body : text;
  const wait = Number(body?.retryAfter ?? response.headers.get("Retry-After") ?? NaN);
  throw new ApiError(
    response.status,
    body?.error ?? `HTTP_${response.status}`,
    body?.message ?? "The answer is not from the service. Check the URL and the proxy.",
    body?.details,
    body?.requestId,
    Number.isNaN(wait) ? undefined : wait,
  );
}

/** `AbortSignal.any` is not in Node.js 20.0 and older browsers. */
function anyOf(first: AbortSignal, second?: AbortSignal): { signal: AbortSignal; release: () => void } {
  const either = new AbortController();
  const stops = [first, second].filter((one) => one !== undefined).map((one) => ({ one, stop: () => either.abort(one.reason) }));
  for (const { one, stop } of stops) one.aborted ? stop() : one.addEventListener("abort", stop, { once: true });
  return { signal: either.signal, release: () => stops.forEach(({ one, stop }) => one.removeEventListener("abort", stop)) };
}
