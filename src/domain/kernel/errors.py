"""Errors are values of the domain: a code, what is wrong and what to do about it. None knows an HTTP status.

Seven kinds cover all refusals; the code says which one exactly. One table in the HTTP adapter maps kinds to statuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One field that is wrong: its dotted path (`conditions.0.metric`) and what to do about it."""

    field: str
    message: str


class DomainError(Exception):
    """Base of all refusals. `code` is part of the wire contract."""

    code = "ERROR"

    def __init__(self, message: str, *, code: str | None = None, details: Sequence[FieldFault] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.already_logged = False
        """Whether the account's log tells of it already, in words of its own."""
        if code is not None:
            self.code = code


class ValidationFailed(DomainError):
    """The request itself is wrong."""

    code = "VALIDATION_ERROR"

    @classmethod
    def for_field(cls, field: str, message: str, *, code: str | None = None) -> ValidationFailed:
        return cls(f"{field}: {message}", code=code, details=(FieldFault(field, message),))


class Unauthenticated(DomainError):
    """Nobody we know."""

    code = "UNAUTHENTICATED"


class PermissionDenied(DomainError):
    """Known, but not allowed. The code says by which check."""

    code = "ROLE_REQUIRED"


class NotFound(DomainError):
    """Does not exist for this caller; also everything that belongs to another account."""

    code = "NOT_FOUND"

    @classmethod
    def for_resource(cls, what: str, name: str) -> NotFound:
        return cls(f"There is no {what} {name!r} in this account. Check the id.")


class Conflict(DomainError):
    """Does not fit the present state."""

    code = "CONFLICT"


class VersionMismatch(DomainError):
    """`If-Match` named another version."""

    code = "PRECONDITION_FAILED"


class RateLimited(DomainError):
    """Too much, too soon. `retry_after` is in whole seconds; `limit` and `window_s` describe the policy where there is one."""

    code = "RATE_LIMITED"

    def __init__(
        self, message: str, *, retry_after: int, code: str | None = None, limit: int | None = None, window_s: int | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after
        self.limit = limit
        self.window_s = window_s


class Unavailable(DomainError):
    """We cannot right now; trying again later may work."""

    code = "UNAVAILABLE"


class SecretUnreadable(Unavailable):
    """A stored secret was sealed with a key that is not in the ring, and stays so until somebody restores one or the other."""

    code = "SECRET_UNREADABLE"
