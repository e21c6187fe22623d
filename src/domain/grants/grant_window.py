"""A grant's weekly window: the days and the minutes of the local day in which a command may be sent.

The window is [from, to): the minute `to` is outside. from > to wraps past midnight and belongs to the day on which it starts.
from == to is a whole day: 24 hours of wall clock from that minute. Without minutes, the active days count from midnight to
midnight. Without days, every day is active. `reference_window_and_rate_limit.py` defines the meaning at any instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.kernel.errors import FieldError, ValidationFailed

MINUTES_PER_DAY = 1440
EVERY_DAY: frozenset[int] = frozenset(range(7))


@dataclass(frozen=True, slots=True)
class WeeklyGrantWindow:
    """`active_days`: 0 = Sunday … 6 = Saturday. `timezone`: an IANA name.

    Raises ValidationFailed for days or minutes out of range, or one minute without the other. The
    `GrantWindowEvaluator` checks whether the zone exists.
    """

    active_days: frozenset[int] = frozenset()
    from_minute: int | None = None
    to_minute: int | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        faults = _field_faults(self)
        if faults:
            raise ValidationFailed("Invalid grant window: " + faults[0].message, details=faults)

    @property
    def days(self) -> frozenset[int]:
        return self.active_days or EVERY_DAY

    @property
    def is_always_open(self) -> bool:
        """Whether it is open at every instant, in any time zone."""
        unbounded = self.from_minute is None or self.from_minute == self.to_minute
        return unbounded and self.days == EVERY_DAY


def _field_faults(window: WeeklyGrantWindow) -> list[FieldError]:
    faults = []
    if not window.active_days <= EVERY_DAY:
        faults.append(FieldError("activeDays", "days must be 0 (Sunday) to 6 (Saturday)."))
    bounds = (("activeFromMinute", window.from_minute), ("activeToMinute", window.to_minute))
    for name, minute in bounds:
        if minute is not None and not 0 <= minute < MINUTES_PER_DAY:
            faults.append(FieldError(name, "a minute of the day must be 0 to 1439."))
    if (window.from_minute is None) != (window.to_minute is None):
        missing = "activeToMinute" if window.to_minute is None else "activeFromMinute"
        faults.append(FieldError(missing, "give both activeFromMinute and activeToMinute, or neither."))
    return faults


class GrantWindowEvaluator(Protocol):
    """Port with two implementations (Rust and Python) that agree on every instant from 1970 to 2037 and beyond."""

    def is_known_timezone(self, timezone: str) -> bool:
        """Whether the time zone database contains the zone."""

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        """Raises ValidationFailed for an unknown zone."""

    def next_open_ms(self, window: WeeklyGrantWindow, at_ms: int) -> int | None:
        """`at_ms` itself when open, else the first instant the window opens; None if never within the next year."""
