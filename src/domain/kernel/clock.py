"""Time is a port. The domain represents an instant as integer Unix milliseconds; only adapters format ISO 8601.

The wall clock may be set at any time. What lasts for a while (a deadline, a cooldown, a rate) is measured on the monotonic
clock. What lasts for a while and is stored (a lease, a pause before a retry) is in steady time. The wall clock is for instants
that people and other machines name: schedules, expiries of tokens and approvals, times of events. `ClockStepDetector` notices
when it has been set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

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

    def monotonic_ms(self) -> int:
        """Milliseconds since some instant; never set, and counts while the machine sleeps."""

    def steady_ms(self) -> int:
        """Milliseconds on the time line of the database, which its instances share and which goes on after a restart; never set
        (`steady_time.py`). About the wall time, but never shown: compare it only with itself."""


@dataclass(frozen=True, slots=True)
class Now:
    """The same instant by two clocks: `wall_ms` to record and show, `steady_ms` to count from."""

    wall_ms: int
    steady_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Now:
        return cls(clock.now_ms(), clock.steady_ms())


MAX_INSTANCE_SKEW_MS = MINUTE_MS
"""By how much the wall clocks of two instances may differ."""


def is_of_earlier_clock(past_ms: int, now_ms: int) -> bool:
    """Whether a recorded instant of the past is ahead: the wall clock was set back since. A pause or a limit that counts from
    it must not last until the clock gets there again; it ends, once, because the next instant is recorded by the new time."""
    return past_ms > now_ms + MAX_INSTANCE_SKEW_MS


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


MIN_STEP_MS = SECOND_MS
"""A smaller change of the wall clock is drift: time synchronisation corrects it gradually."""
_MAX_READING_MS = 100
_READINGS = 5


class ClockStepDetector:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = self._read_offset_ms()

    def now_ms(self) -> int:
        """Wall time, without a step that `take_ms` has not returned yet."""
        return self._clock.monotonic_ms() + self._offset_ms

    def take_ms(self) -> int:
        """By how much the clock has been set since the last call; negative: back; 0 if it has not."""
        offset_ms = self._read_offset_ms()
        step_ms = offset_ms - self._offset_ms
        self._offset_ms = offset_ms
        return step_ms if abs(step_ms) >= MIN_STEP_MS else 0

    def _read_offset_ms(self) -> int:
        """Wall minus monotonic time. Read again when the process was held up between the two, which would look like a step."""
        offset_ms = 0
        for _ in range(_READINGS):
            before_ms = self._clock.monotonic_ms()
            offset_ms = self._clock.now_ms() - before_ms
            if self._clock.monotonic_ms() - before_ms <= _MAX_READING_MS:
                break
        return offset_ms


class StoredSteadyTime(NamedTuple):
    """`age_ms`: how long ago it was stored, by the wall clock of the database; negative when that was set back."""

    steady_ms: int
    age_ms: int
    heard_ms: int | None = None
    """Steady time up to which devices were heard; None: not known."""
    wall_offset_ms: int | None = None
    """By how much the wall time that the service last went by was ahead of steady time; None: not known."""
    confirmed_ms: int | None = None
    """The wall time at which a person last said that the clock is right."""


class TimeSpan(NamedTuple):
    """Unix ms: from `since_ms` on, and before `until_ms`; None: no limit."""

    since_ms: int | None = None
    until_ms: int | None = None

    def contains(self, at_ms: int) -> bool:
        return (self.since_ms is None or self.since_ms <= at_ms) and (self.until_ms is None or at_ms < self.until_ms)


ANY_TIME: Final = TimeSpan()


class SteadyTimeAdvance(NamedTuple):
    """What is stored now: the greatest steady time, and `StoredSteadyTime.confirmed_ms`."""

    steady_ms: int
    confirmed_ms: int | None


class SteadyTimeRepository(Protocol):
    """Of every transaction, so it cannot stand in `steady_time.py`, which needs transactions."""

    async def find(self, wall_ms: int) -> StoredSteadyTime | None:
        """`wall_ms`: the wall time for a database without a clock of its own."""

    async def advance(
        self, steady_ms: int, wall_ms: int, heard_ms: int | None = None, wall_offset_ms: int | None = None
    ) -> SteadyTimeAdvance:
        """Store `steady_ms` unless a greater one is stored, and what is known of the others."""

    async def confirm_wall_time(self, wall_ms: int) -> None:
        """A person says that it is this wall time now. Does nothing before the first `advance`."""
