"""Whether a grant lets a call pass, decided without I/O.

A grant is put to five checks in a fixed order: command, scope, expiry, window, rate. It lets a call pass when none fails; the
rate is the only one that costs something, so it stands last and is not asked here. Of several grants that all fail, the refusal
names the nearest miss: the one that got furthest along this order, for it is the one that needs the smallest change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from domain.grants.model import Grant, Scope
from domain.grants.rate_limit import RATE_WINDOW_S
from domain.grants.window import GrantWindow, WindowEvaluator
from domain.kernel.clock import SECOND_MS, to_iso
from domain.kernel.errors import PermissionDenied, RateLimited

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


class GrantCheck(IntEnum):
    """In the order in which they are made; a higher one is a nearer miss."""

    COMMAND = 0
    SCOPE = 1
    EXPIRY = 2
    WINDOW = 3
    RATE = 4


DENIAL_CODES: dict[GrantCheck, str] = {
    GrantCheck.COMMAND: "COMMAND_NOT_GRANTED",
    GrantCheck.SCOPE: "SCOPE_TOO_NARROW",
    GrantCheck.EXPIRY: "GRANT_EXPIRED",
    GrantCheck.WINDOW: "OUTSIDE_GRANT_WINDOW",
    GrantCheck.RATE: "RATE_LIMITED",
}
GRANT_MISSING = "GRANT_MISSING"


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """What the caller wants. `command` None is a read. `later`: it will run at another time than now, so the window is left to
    the check that is made then."""

    command: str | None
    is_query: bool = False
    runs_later: bool = False


READ_REQUEST = PermissionRequest(None)


@dataclass(frozen=True, slots=True)
class Denial:
    """One grant, the first check it fails, and from when on it would pass if nothing else changed (None: not by waiting)."""

    grant: Grant
    check: GrantCheck
    passes_from_ms: int | None = None

    @property
    def code(self) -> str:
        return DENIAL_CODES[self.check]


def first_failed_check(grant: Grant, ask: PermissionRequest, now_ms: int, windows: WindowEvaluator) -> Denial | None:
    """The first check that fails, the rate excepted; None when the grant lets the call pass."""
    if ask.command is not None:
        if not grant.covers_command(ask.command):
            return Denial(grant, GrantCheck.COMMAND)
        if grant.scope is Scope.READ and not ask.is_query:
            return Denial(grant, GrantCheck.SCOPE)
    if grant.is_expired(now_ms):
        return Denial(grant, GrantCheck.EXPIRY)
    if ask.command is None or ask.runs_later or grant.window.is_always_open or windows.is_open(grant.window, now_ms):
        return None
    opens_ms = windows.next_open_ms(grant.window, now_ms)
    if opens_ms is not None and grant.is_expired(opens_ms):
        opens_ms = None
    return Denial(grant, GrantCheck.WINDOW, opens_ms)


def filter_applicable(
    grants: Iterable[Grant], ask: PermissionRequest, now_ms: int, windows: WindowEvaluator
) -> tuple[list[Grant], list[Denial]]:
    """Those that let the call pass but for their rate, and the others with what they fail; both in the order given."""
    passing: list[Grant] = []
    misses: list[Denial] = []
    for grant in grants:
        miss = first_failed_check(grant, ask, now_ms, windows)
        if miss is None:
            passing.append(grant)
        else:
            misses.append(miss)
    return passing, misses


def closest_denial(misses: Sequence[Denial]) -> Denial:
    """The furthest along the order of checks; then the one that would pass soonest, or expired last; then the oldest."""
    return max(misses, key=_closeness)


def _closeness(miss: Denial) -> tuple[int, float]:
    if miss.check is GrantCheck.EXPIRY:
        return miss.check, miss.grant.expires_ms or 0
    return miss.check, float("-inf") if miss.passes_from_ms is None else -miss.passes_from_ms


def denial_error(miss: Denial, ask: PermissionRequest, now_ms: int) -> PermissionDenied | RateLimited:
    """The error to raise for a nearest miss."""
    message = explain_denial(miss, ask)
    if miss.check is not GrantCheck.RATE:
        return PermissionDenied(message, code=miss.code)
    wait_ms = (miss.passes_from_ms or now_ms) - now_ms
    return RateLimited(
        message,
        retry_after=max(1, -(-wait_ms // SECOND_MS)),
        limit=miss.grant.rate_limit_per_minute,
        window_s=RATE_WINDOW_S,
    )


def explain_denial(miss: Denial, ask: PermissionRequest) -> str:
    """What is wrong and what to do about it, in a sentence or two."""
    grant = miss.grant
    name = f"Grant {grant.grant_id}"
    match miss.check:
        case GrantCheck.COMMAND:
            return (
                f"{name} covers {', '.join(grant.commands)}, not {ask.command}. "
                f"An Owner or Admin can add {ask.command} to its commands."
            )
        case GrantCheck.SCOPE:
            return (
                f"{name} has the scope READ, which covers reads and QUERY commands; {ask.command} is an ACTION. "
                "An Owner or Admin can give it the scope WRITE."
            )
        case GrantCheck.EXPIRY:
            expired = to_iso(grant.expires_ms or 0)
            return f"{name} expired at {expired}. An Owner or Admin can set a later expiresAt, or null for none."
        case GrantCheck.WINDOW:
            return f"{name} is open {describe_window(grant.window)}. {_next_opening_advice(miss)}"
        case GrantCheck.RATE:
            when = "" if miss.passes_from_ms is None else f" The next one fits at {to_iso(miss.passes_from_ms)}."
            return f"{name} allows {grant.rate_limit_per_minute} commands in any 60 seconds, and they are used up.{when}"


def _next_opening_advice(miss: Denial) -> str:
    if miss.passes_from_ms is not None:
        return f"Try again at {to_iso(miss.passes_from_ms)}, or have an Owner or Admin widen its window."
    if miss.grant.expires_ms is not None:
        return "It does not open again before it expires; have an Owner or Admin change its window or expiresAt."
    return "It does not open within a year; have an Owner or Admin change its window."


def describe_window(window: GrantWindow) -> str:
    """`Mon Tue 08:00-17:30 Europe/Berlin`."""
    days = "every day" if len(window.days) == len(_DAYS) else " ".join(_DAYS[day] for day in sorted(window.days))
    if window.from_minute is None or window.to_minute is None:
        return f"{days} ({window.timezone})"
    return f"{days} {_format_minute(window.from_minute)}-{_format_minute(window.to_minute)} ({window.timezone})"


def _format_minute(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def missing_grant_error(who: str, device_id: str, ask: PermissionRequest) -> PermissionDenied:
    wanted = "read it" if ask.command is None else f"run {ask.command} on it"
    return PermissionDenied(
        f"{who} has no grant on device {device_id} and may not {wanted}. "
        "An Owner or Admin can create one under the device's grants.",
        code=GRANT_MISSING,
    )
