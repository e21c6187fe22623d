"""A grant's weekly window: on which days and between which minutes of the local day a command may be sent.

The window is [from, to): the minute `to` itself is outside. from > to wraps past midnight and belongs to the day it starts on.
from == to is the whole day, 24 hours of wall clock from that minute on. No minutes at all: the active days from midnight to
midnight. No days: every day. What all this means at a given instant is defined in `reference.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.kernel.errors import FieldFault, ValidationFailed

MINUTES_PER_DAY = 1440
EVERY_DAY: frozenset[int] = frozenset(range(7))


@dataclass(frozen=True, slots=True)
class GrantWindow:
    """`active_days`: 0 = Sunday … 6 = Saturday. `timezone`: an IANA name.

    Raises Invalid for days or minutes out of range, or one minute without the other. Whether the zone exists is asked of
    the `WindowEvaluator`.
    """

    active_days: frozenset[int] = frozenset()
    from_minute: int | None = None
    to_minute: int | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        faults = _field_faults(self)
        if faults:
            raise ValidationFailed("The grant's window is wrong: " + faults[0].message, details=faults)

    @property
    def days(self) -> frozenset[int]:
        return self.active_days or EVERY_DAY

    @property
    def is_always_open(self) -> bool:
        """Open at every instant, whatever the zone."""
        unbounded = self.from_minute is None or self.from_minute == self.to_minute
        return unbounded and self.days == EVERY_DAY


def _field_faults(window: GrantWindow) -> list[FieldFault]:
    faults = []
    if not window.active_days <= EVERY_DAY:
        faults.append(FieldFault("activeDays", "days are 0 (Sunday) to 6 (Saturday)."))
    bounds = (("activeFromMinute", window.from_minute), ("activeToMinute", window.to_minute))
    for name, minute in bounds:
        if minute is not None and not 0 <= minute < MINUTES_PER_DAY:
            faults.append(FieldFault(name, "a minute of the day is 0 to 1439."))
    if (window.from_minute is None) != (window.to_minute is None):
        missing = "activeToMinute" if window.to_minute is None else "activeFromMinute"
        faults.append(FieldFault(missing, "give both activeFromMinute and activeToMinute, or neither."))
    return faults


class WindowEvaluator(Protocol):
    """Port: two implementations, equal on every instant from 1970 to 2037 and beyond."""

    def is_known_timezone(self, timezone: str) -> bool:
        """Whether the zone's rules are at hand."""
        ...

    def is_open(self, window: GrantWindow, at_ms: int) -> bool:
        """Raises Invalid for an unknown zone."""
        ...

    def next_open_ms(self, window: GrantWindow, at_ms: int) -> int | None:
        """`at_ms` itself when open, else the first instant the window opens; None if never within the next year."""
        ...
