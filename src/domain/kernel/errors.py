"""Domain errors: a code, what is wrong and what to do about it. They know no HTTP status.

Eight classes cover all errors; the code names the exact one. One table in the HTTP adapter maps classes to statuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field: its dotted path (`conditions.0.metric`) and what to do about it."""

    field: str
    message: str


class DomainError(Exception):
    """Base class of all domain errors. `code` is part of the wire contract."""

    code = "ERROR"

    def __init__(self, message: str, *, code: str | None = None, details: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.already_logged = False
        """Whether the account's log already has a more specific event for this error."""
        if code is not None:
            self.code = code


class ValidationFailed(DomainError):
    """The request itself is wrong."""

    code = "VALIDATION_ERROR"

    @classmethod
    def for_field(cls, field: str, message: str, *, code: str | None = None) -> ValidationFailed:
        return cls(f"{field}: {message}", code=code, details=(FieldError(field, message),))


class UnstorableValue(ValidationFailed):
    """The database refused a value for good (a constraint, its encoding, its range); another try fails again."""


class Unauthenticated(DomainError):
    """The caller is not authenticated."""

    code = "UNAUTHENTICATED"


class PermissionDenied(DomainError):
    """The caller is authenticated but not permitted. The code names the check that failed."""

    code = "ROLE_REQUIRED"


class NotFound(DomainError):
    """The resource does not exist, or belongs to another account."""

    code = "NOT_FOUND"

    @classmethod
    def for_resource(cls, what: str, name: str) -> NotFound:
        return cls(f"There is no {what} {name!r} in this account. Check the id.")


class Conflict(DomainError):
    """The request conflicts with the current state."""

    code = "CONFLICT"


class Gone(DomainError):
    """What the request names was there and will not be again (RFC 9110, 15.5.11)."""

    code = "GONE"


class VersionMismatch(DomainError):
    """`If-Match` named a version that is not current (RFC 9110, 13.1.1)."""

    code = "PRECONDITION_FAILED"


class RateLimited(DomainError):
    """Too many requests. `retry_after` is in whole seconds; `limit` and `window_s` describe the limit, if there is one."""

    code = "RATE_LIMITED"

    def __init__(
        self, message: str, *, retry_after: int, code: str | None = None, limit: int | None = None, window_s: int | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after
        self.limit = limit
        self.window_s = window_s


class Unavailable(DomainError):
    """The service is temporarily unavailable; a later retry may succeed."""

    code = "UNAVAILABLE"


class SecretUnreadable(Unavailable):
    """The key that sealed a stored secret is not in the key ring. Lasts until the key is restored or the secret replaced."""

    code = "SECRET_UNREADABLE"
