/** What can go wrong. Each message says what to do about it. */
export class LatchboardError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No complete response came. A call that changes something may or may not have been carried out. */
export class TransportError extends LatchboardError {}

/** A webhook request is not from the service, or too old. Answer 400 and do not use it. */
export class VerificationError extends LatchboardError {}

/** The wait is over; what was waited for may still happen. */
export class WaitTimeoutError extends LatchboardError {}

/** The service refused. `code` is stable, such as `GRANT_MISSING`; `message` says what is wrong and what to do about it. */
export class ApiError extends LatchboardError {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: { field: string; message: string }[] = [],
    readonly requestId?: string,
    readonly retryAfterSeconds?: number,
  ) {
    super(message + details.map((one) => ` ${one.field}: ${one.message}`).join(""));
  }
}

/** The command was denied, or nobody decided in time. It was not sent and will not be. */
export class ApprovalRefusedError extends LatchboardError {
  constructor(
    readonly approvalId: string,
    readonly status: string,
    readonly note: string | null,
  ) {
    super(`${approvalId} is ${status}${note ? `: ${note}` : ""}.`);
  }
}

/** The command ended without success: FAILED, TIMED_OUT, EXPIRED or CANCELLED. `result` is the device's. */
export class CommandNotDoneError extends LatchboardError {
  constructor(
    readonly executionId: string,
    readonly status: string,
    readonly result: unknown,
  ) {
    super(`${executionId} is ${status}: ${JSON.stringify(result)}.`);
  }
}
