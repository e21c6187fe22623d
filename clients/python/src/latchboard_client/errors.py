"""What can go wrong. Each error says what to do about it in its message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class LatchboardError(Exception):
    """The base of every error of this package."""


class TransportError(LatchboardError):
    """No complete response came. A call that changes something may or may not have been carried out."""


class ResponseError(LatchboardError):
    """The response does not fit the document that this client was made from. Its version may not fit the service's."""


class VerificationError(LatchboardError):
    """A webhook request is not from the service, or too old. Answer 400 and do not use it."""


class WaitTimeoutError(LatchboardError, TimeoutError):
    """The wait is over; what was waited for may still happen."""


@dataclass(eq=False)
class ApprovalRefusedError(LatchboardError):
    """The command was denied, or nobody decided in time. It was not sent and will not be."""

    approval_id: str
    status: str
    note: str | None

    def __str__(self) -> str:
        return f"{self.approval_id} is {self.status}" + (f": {self.note}" if self.note else "") + "."


@dataclass(eq=False)
class CommandNotDoneError(LatchboardError):
    """The command ended without success. `status`: FAILED, TIMED_OUT, EXPIRED or CANCELLED; `result` is the device's."""

    execution_id: str
    status: str
    result: Any

    def __str__(self) -> str:
        return f"{self.execution_id} is {self.status}: {self.result}."


@dataclass(eq=False)
class ApiError(LatchboardError):
    """The service refused. `code` is stable, such as `GRANT_MISSING`; `message` says what is wrong and what to do about it."""

    status: int
    code: str
    message: str
    details: list[dict[str, str]]
    request_id: str | None
    retry_after_s: float | None

    def __str__(self) -> str:
        fields = "".join(f" {one.get('field')}: {one.get('message')}" for one in self.details)
        return f"{self.code}: {self.message}{fields} ({self.status}, {self.request_id})"


class InvalidRequestError(ApiError):
    """400 and other faults of the request; `details` names the fields."""


class UnauthenticatedError(ApiError):
    """401: the key or token is missing, unknown, expired or revoked."""


class ForbiddenError(ApiError):
    """403: authenticated, but not allowed. `explain_access` tells why."""


class NotFoundError(ApiError):
    """404: it does not exist, or is of another account."""


class ConflictError(ApiError):
    """409 or 412: it exists already, or has changed meanwhile."""


class RateLimitedError(ApiError):
    """429: nothing was done. Try again after `retry_after_s`."""


class UnavailableError(ApiError):
    """5xx: the service cannot answer now."""


BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    429: RateLimitedError,
}


def api_error(status: int, body: Any, retry_after: str | None = None) -> ApiError:
    """`body`: the decoded JSON, or anything else if a proxy answered."""
    said = body if isinstance(body, dict) else {}
    kind = BY_STATUS.get(status, UnavailableError if status >= 500 else InvalidRequestError)
    wait = str(said.get("retryAfter", retry_after))
    return kind(
        status=status,
        code=str(said.get("error", f"HTTP_{status}")),
        message=str(said.get("message", "The answer is not from the service. Check the URL and the proxy.")),
        details=list(said.get("details") or ()),
        request_id=said.get("requestId"),
        retry_after_s=float(wait) if wait.isdigit() else None,
    )
