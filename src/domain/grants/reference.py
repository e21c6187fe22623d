"""The reference definition of a grant's window and rate limit. The native evaluator must agree with it at every instant.

An instant is converted to a local day and a minute of that day. A window without minutes is open on its days. A window that wraps
past midnight is open in the evening of an active day and in the morning after it. A change of the clocks needs no special case:
a skipped hour is in no window, and a repeated hour is open both times.

The rate limit looks back 60 seconds: a use counts from its instant until 60 seconds later. A use with a future time, stamped by
another instance whose clock is days_ahead, counts as well, so that no 60 seconds contain more uses than the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from domain.grants.model import RATE_WINDOW_MS, GrantRateLimitDecision, WeeklyGrantWindow
from domain.kernel.clock import MINUTE_MS
from domain.kernel.errors import ValidationFailed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEARCH_DAYS = 366


@lru_cache(maxsize=1024)
def load_timezone(name: str) -> ZoneInfo:
    """Raises ValidationFailed for an unknown time zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValidationFailed.for_field(
            "timezone", f"{name!r} is not an IANA time zone. Use a name such as Europe/Berlin or UTC."
        ) from None


def is_open(window: WeeklyGrantWindow, at_ms: int) -> bool:
    """Raises ValidationFailed for an unknown zone."""
    local = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(load_timezone(window.timezone))
    today = local.isoweekday() % 7
    minute = local.hour * 60 + local.minute
    start, end = window.from_minute, window.to_minute
    if start is None or end is None:
        return today in window.days
    if start < end:
        return today in window.days and start <= minute < end
    if minute >= start:
        return today in window.days
    return minute < end and (today - 1) % 7 in window.days


def next_open_ms(window: WeeklyGrantWindow, at_ms: int) -> int | None:
    """`at_ms` itself when open, else the first instant the window opens within the next 366 days, else None.

    A window opens when the wall clock reaches its first minute, or when a change of the clocks jumps into it.
    """
    if is_open(window, at_ms):
        return at_ms
    local = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(load_timezone(window.timezone))
    for days_ahead in range(-1, SEARCH_DAYS):
        openings = sorted(_possible_openings(window, local.date() + timedelta(days=days_ahead)))
        for candidate_ms in openings:
            if candidate_ms > at_ms and is_open(window, candidate_ms):
                return candidate_ms
    return None


def rate_allowance(uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
    """Whether the limit allows one more use. `uses` in any order; `limit` ≥ 1."""
    recent = sorted(at_ms for at_ms in uses if at_ms > now_ms - RATE_WINDOW_MS)
    if len(recent) < limit:
        return GrantRateLimitDecision(True, limit - len(recent) - 1, min([*recent, now_ms]) + RATE_WINDOW_MS)
    return GrantRateLimitDecision(False, 0, recent[-limit] + RATE_WINDOW_MS)


def _possible_openings(window: WeeklyGrantWindow, day: date) -> Iterator[int]:
    """Instants of the local `day` at which the window may open."""
    zone = load_timezone(window.timezone)
    midnight = datetime.combine(day, time(), zone)
    following = datetime.combine(day + timedelta(days=1), time(), zone)
    start_ms, end_ms = _to_unix_ms(midnight), _to_unix_ms(following)
    if midnight.utcoffset() != following.utcoffset():
        yield from range(start_ms, end_ms, MINUTE_MS)
    yield _to_unix_ms(midnight + timedelta(minutes=window.from_minute or 0))


def _to_unix_ms(local: datetime) -> int:
    return (local.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
