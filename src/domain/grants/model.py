"""A grant allows one subject (an API key or a membership) named commands on one device, on the members of a group, or on all
devices of a project.

It can be limited by an expiry, by weekdays and a daily window in its own time zone, and by a number of uses in any 60 seconds.
Grants only add permissions: of several, one that allows the call is enough. Uses are counted in the database under the grant's
row lock, because several instances may count at once; the decision over the counted uses needs no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from domain.devices.model import Device
from domain.kernel.clock import MINUTE_MS, SECOND_MS
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.errors import FieldError, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, GrantId, GroupId, KeyId, MembershipId, ProjectId

ANY_COMMAND = "*"


class Scope(StrEnum):
    """READ covers reads and QUERY commands; WRITE adds ACTION commands; FULL is everything a grant can allow."""

    READ = "READ"
    WRITE = "WRITE"
    FULL = "FULL"


class AppliesVia(StrEnum):
    DEVICE = "device"
    GROUP = "group"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class GrantSubject:
    """Exactly one of the two is set."""

    key_id: KeyId | None = None
    membership_id: MembershipId | None = None


MINUTES_PER_DAY = 1440
EVERY_DAY: frozenset[int] = frozenset(range(7))


@dataclass(frozen=True, slots=True)
class WeeklyGrantWindow:
    """`active_days`: 0 = Sunday … 6 = Saturday. `timezone`: an IANA name.

    The window is [from, to): the minute `to` is outside. from > to wraps past midnight and belongs to the day on which it starts.
    from == to is a whole day: 24 hours of wall clock from that minute. Without minutes, the active days count from midnight to
    midnight. Without days, every day is active. `reference.py` defines the meaning at any instant.

    Raises ValidationFailed for days or minutes out of range, or one minute without the other. The `GrantEvaluator` checks whether
    the zone exists."""

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


@fast_frozen
@dataclass(frozen=True, slots=True)
class Grant:
    """`device_id` is set for a device grant, `project_id` for a project grant. A group grant has `group_id`, and the group's
    project."""

    grant_id: GrantId
    account_id: AccountId
    subject: GrantSubject
    device_id: DeviceId | None
    project_id: ProjectId | None
    commands: tuple[str, ...]
    scope: Scope
    expires_ms: int | None
    window: WeeklyGrantWindow
    rate_limit_per_minute: int | None
    created_ms: int
    created_by: str
    changed_by: tuple[str, ...] = ()
    """The labels of those who have changed it since."""

    group_id: GroupId | None = None
    channels: tuple[int, ...] = ()
    """Of each device that it covers; empty: all."""

    @property
    def applies_via(self) -> AppliesVia:
        if self.device_id is not None:
            return AppliesVia.DEVICE
        return AppliesVia.PROJECT if self.group_id is None else AppliesVia.GROUP

    @property
    def place(self) -> str:
        """The id of the device, group or project that it is on."""
        return self.device_id or self.group_id or self.project_id or ""

    def applies_to(self, device: Device) -> bool:
        """Whether the grant covers the device, directly or through a group or its project."""
        return self.place in device.places

    def covers_command(self, command: str) -> bool:
        return ANY_COMMAND in self.commands or command in self.commands

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class ApiKeyReadAccess:
    """The read permission that a grant gives an API key: on which device, group or project, as in `Grant`, and until when."""

    key_id: KeyId
    device_id: DeviceId | None
    project_id: ProjectId | None
    expires_ms: int | None
    group_id: GroupId | None = None

    @property
    def place(self) -> str:
        return self.device_id or self.group_id or self.project_id or ""


RATE_WINDOW_S = 60
RATE_WINDOW_MS = MINUTE_MS


def rate_window(now_ms: int) -> tuple[int, int]:
    """(after, until) in Unix ms: the uses that count. Another instance's clock may be ahead, by less than the window. A use
    further ahead was counted before the clock was set back, and must not block the grant until that time comes again."""
    return now_ms - RATE_WINDOW_MS, now_ms + RATE_WINDOW_MS


@dataclass(frozen=True, slots=True)
class GrantRateLimitDecision:
    """Whether one more use fits, how many more fit after it, and the Unix ms at which the next use leaves the window."""

    is_allowed: bool
    remaining: int
    next_free_ms: int


@dataclass(frozen=True, slots=True)
class RemainingRateLimit:
    """What is left of a grant's rate limit after an allowed call; the next use is free in `reset_s` seconds."""

    limit: int
    remaining: int
    reset_s: int

    @classmethod
    def from_allowance(cls, limit: int, allowance: GrantRateLimitDecision, now_ms: int) -> RemainingRateLimit:
        return cls(limit, allowance.remaining, max(1, -(-(allowance.next_free_ms - now_ms) // SECOND_MS)))


class GrantEvaluator(Protocol):
    """Port: all time-dependent checks of a grant. Its two implementations, native and readable (`reference.py`), agree on every
    instant from 1970 to 2037 and beyond, and on every history of uses."""

    def is_known_timezone(self, timezone: str) -> bool:
        """Whether the time zone database contains the zone."""

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        """Raises ValidationFailed for an unknown zone."""

    def next_open_ms(self, window: WeeklyGrantWindow, at_ms: int) -> int | None:
        """`at_ms` itself when open, else the first instant the window opens; None if never within the next year."""

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        """`uses`: Unix ms of earlier uses in any order, at least the newest `limit` of the last 60 seconds. `limit` ≥ 1."""
