/** The client: typed calls, the feed, and waiting for approvals and devices. */
import { ApprovalRefusedError, CommandNotDoneError, WaitTimeoutError } from "./errors.js";
import { Feed, type FeedOptions } from "./feed.js";
import { Http, sleep, type ClientOptions, type RawOptions } from "./http.js";
import type { CallArguments, Entry, Method, Operation, PathsWith, Schemas, Success } from "./types.js";

const LONGEST_SERVER_WAIT_SECONDS = 30;
const SLOWEST_POLL_MS = 5_000;
const OPEN = new Set(["QUEUED", "SENT", "ACKED"]);

export interface WaitOptions {
  /** Ends the wait: the call throws the signal's reason. What was sent stays sent. */
  signal?: AbortSignal;
}

export interface RunOptions extends WaitOptions {
  /** 60 by default. */
  timeoutSeconds?: number;
  idempotencyKey?: string;
}

export class Latchboard {
  private readonly http: Http;

  /** `url`: of the service, such as `https://latchboard.example.com`. */
  constructor(url: string, options: ClientOptions = {}) {
    this.http = new Http(url, options);
  }

  get<P extends PathsWith<"get">>(path: P, ...options: CallArguments<Operation<"get", P>>): Promise<Success<Operation<"get", P>>> {
    return this.call("get", path, options[0]);
  }

  post<P extends PathsWith<"post">>(path: P, ...options: CallArguments<Operation<"post", P>>): Promise<Success<Operation<"post", P>>> {
    return this.call("post", path, options[0]);
  }

  put<P extends PathsWith<"put">>(path: P, ...options: CallArguments<Operation<"put", P>>): Promise<Success<Operation<"put", P>>> {
    return this.call("put", path, options[0]);
  }

  patch<P extends PathsWith<"patch">>(path: P, ...options: CallArguments<Operation<"patch", P>>): Promise<Success<Operation<"patch", P>>> {
    return this.call("patch", path, options[0]);
  }

  delete<P extends PathsWith<"delete">>(path: P, ...options: CallArguments<Operation<"delete", P>>): Promise<Success<Operation<"delete", P>>> {
    return this.call("delete", path, options[0]);
  }

  /** Every entry of a list, page by page: `for await (const device of client.entries("/api/v1/devices"))`. */
  async *entries<P extends PathsWith<"get">>(
    path: P,
    ...options: CallArguments<Operation<"get", P>>
  ): AsyncGenerator<Entry<Success<Operation<"get", P>>>> {
    const given: RawOptions = options[0] ?? {};
    let query = given.query;
    for (;;) {
      const { body, cursor } = await this.http.page("get", path, { ...given, ...(query === undefined ? {} : { query }) });
      yield* (Array.isArray(body) ? body : (body as { data: unknown[] }).data) as Entry<Success<Operation<"get", P>>>[];
      if (cursor === null) return;
      query = { ...query, cursor };
    }
  }

  /** The live feed, of all event types by default. */
  feed(options: FeedOptions = {}): Feed {
    return new Feed(this.http, options);
  }

  /**
   * Send a command, wait for its approval if it needs one, and for the device; the execution is DONE.
   * Throws ApprovalRefusedError, CommandNotDoneError, WaitTimeoutError, ApiError.
   */
  async runCommand(
    deviceId: string,
    command: Schemas["CommandSendRequest"],
    { timeoutSeconds = 60, idempotencyKey, ...options }: RunOptions = {},
  ): Promise<Schemas["ExecutionResponse"]> {
    const deadline = Date.now() + timeoutSeconds * 1000;
    const left = () => (deadline - Date.now()) / 1000;
    const answer = await this.post("/api/v1/devices/{deviceId}/command", {
      path: { deviceId },
      body: { ...command, waitSeconds: Math.min(timeoutSeconds, LONGEST_SERVER_WAIT_SECONDS) },
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      ...options,
    });
    const isAsked = "approvalRequired" in answer;
    const executionId = isAsked
      ? (await this.waitForApproval(deviceId, answer.approvalId, left(), options)).executionId!
      : answer.executionId;
    const execution = await this.waitForExecution(deviceId, executionId, left(), options);
    if (execution.status !== "DONE") throw new CommandNotDoneError(executionId, execution.status, execution.result);
    return execution;
  }

  /** Wait until the approval is granted. */
  async waitForApproval(
    deviceId: string,
    approvalId: string,
    timeoutSeconds: number,
    options: WaitOptions = {},
  ): Promise<Schemas["ApprovalResponse"]> {
    const read = () => this.get("/api/v1/devices/{deviceId}/approvals/{approvalId}", { path: { deviceId, approvalId }, ...options });
    const approval = await poll(read, ({ status }) => status !== "PENDING", timeoutSeconds, approvalId, options);
    if (approval.status !== "APPROVED") throw new ApprovalRefusedError(approvalId, approval.status, approval.note);
    return approval;
  }

  /** Wait until the execution has ended, well or not. */
  async waitForExecution(
    deviceId: string,
    executionId: string,
    timeoutSeconds: number,
    options: WaitOptions = {},
  ): Promise<Schemas["ExecutionResponse"]> {
    const read = () => this.get("/api/v1/devices/{deviceId}/executions/{executionId}", { path: { deviceId, executionId }, ...options });
    return poll(read, ({ status }) => !OPEN.has(status), timeoutSeconds, executionId, options);
  }

  private async call<T>(method: Method, path: string, options: unknown): Promise<T> {
    return (await this.http.call(method, path, options as RawOptions)) as T;
  }
}

async function poll<T>(
  read: () => Promise<T>,
  isOver: (found: T) => boolean,
  timeoutSeconds: number,
  what: string,
  { signal }: WaitOptions,
): Promise<T> {
  const deadline = Date.now() + timeoutSeconds * 1000;
  for (let pause = 250; ; pause = Math.min(pause * 1.5, SLOWEST_POLL_MS)) {
    const found = await read();
    if (isOver(found)) return found;
    const left = deadline - Date.now();
    if (left <= 0) throw new WaitTimeoutError(`${what} is still open after ${timeoutSeconds} s. Wait longer, or read it again later.`);
    await sleep(Math.min(pause, left), signal);
  }
}
