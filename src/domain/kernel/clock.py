"""Time is a port. The domain represents an instant as integer Unix milliseconds; only adapters format ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = _EPOCH.replace(tzinfo=None)
"""Naive, because `isoformat` would append the offset of a zone; `strftime` takes six times as long."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, Unix milliseconds."""
        ...


def to_iso(at_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds and `Z`: 2026-11-21T04:00:00.000Z."""
    moment = _EPOCH_NAIVE + timedelta(milliseconds=at_ms)
    return moment.isoformat(timespec="milliseconds") + "Z"


def from_iso(text: str) -> int:
    """Unix milliseconds of an ISO 8601 date-time with an offset. Raises ValueError without one."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a date-time needs an offset, such as Z or +02:00")
    return int((moment - _EPOCH) / timedelta(milliseconds=1))
