"""Schedules: each device has five slots; a slot switches on and off at two times, once or by an RFC 5545 recurrence rule.

PENDING → ACTIVE (on fired) → COMPLETED (off fired); CANCELLED. An edge (on or off of one revision of a slot at one due second)
fires at most once: its key is unique in the database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from domain.devices.channels import RELAY_CHANNEL
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.domain_event import Json
from domain.kernel.ids import AccountId, DeviceId, MembershipId, ScheduleId

SLOTS_PER_DEVICE = 5
DEFAULT_MISFIRE_GRACE_S = 15 * 60
MIN_MISFIRE_GRACE_S = 60
"""An edge that is late by less is not missed: it covers a restart and the busiest minute of a large fleet."""


class ScheduleStatus(StrEnum):
    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"


class SwitchEdge(StrEnum):
    ON = "on"
    OFF = "off"


class MisfirePolicy(StrEnum):
    FIRE = "FIRE"
    SKIP = "SKIP"


class EdgeOutcome(StrEnum):
    """The outcome of a due edge."""

    FIRED = "FIRED"
    FIRED_LATE = "FIRED_LATE"
    MISSED = "MISSED"
    SKIPPED_APPROVAL = "SKIPPED_APPROVAL"
    SKIPPED_GRANT = "SKIPPED_GRANT"
    SKIPPED_DEVICE = "SKIPPED_DEVICE"
    SKIPPED_COMMAND = "SKIPPED_COMMAND"
    SUPERSEDED = "SUPERSEDED"
    LEFT_TO_DEVICE = "LEFT_TO_DEVICE"
    """The offline device holds the plan; the edge is resolved when it is back."""
    RAN_ON_DEVICE = "RAN_ON_DEVICE"


SKIPPED_OUTCOMES = frozenset(
    {
        EdgeOutcome.MISSED,
        EdgeOutcome.SKIPPED_APPROVAL,
        EdgeOutcome.SKIPPED_COMMAND,
        EdgeOutcome.SKIPPED_DEVICE,
        EdgeOutcome.SKIPPED_GRANT,
        EdgeOutcome.SUPERSEDED,
    }
)
"""Nothing was switched, and nobody is to say so any more."""


@dataclass(frozen=True, slots=True)
class ScheduledCommand:
    command: str
    params: Json = None
    channel: int = RELAY_CHANNEL

    @property
    def is_plain(self) -> bool:
        """Firmware that stores schedules can run it by itself."""
        return self.command in ("ON", "OFF") and self.params is None


PLAIN_ON = ScheduledCommand("ON")
PLAIN_OFF = ScheduledCommand("OFF")


@fast_frozen
@dataclass(frozen=True, slots=True)
class Schedule:
    """`on_ts`, `off_ts`: Unix seconds of the first occurrence. `next_fire_ts`, `next_edge`: the earliest undecided edge, None
    without one. `revision` increases whenever the slot's times or commands change."""

    schedule_id: ScheduleId
    account_id: AccountId
    device_id: DeviceId
    device_no: int
    slot: int
    on_ts: int
    off_ts: int
    label: str
    enabled: bool
    status: ScheduleStatus
    on_command: ScheduledCommand
    off_command: ScheduledCommand
    rrule: str | None
    timezone: str
    misfire: MisfirePolicy
    misfire_grace_s: int
    revision: int
    next_fire_ts: int | None
    next_edge: SwitchEdge | None
    last_fired_ms: int | None
    last_outcome: EdgeOutcome | None
    created_by: MembershipId | None
    created_ms: int
    updated_ms: int
    withdrawn: bool = False
    """The device must not run it by itself, because who saved it may not run it then. The service decides each edge."""
    seq: int = field(default=0, compare=False, repr=False)
    """Its place among those of its kind, in the order of their making. The storage gives it."""


@fast_frozen
@dataclass(frozen=True, slots=True)
class DecidedScheduleEdge:
    """The record of a decided edge; (schedule, revision, edge, due second) is unique. `at_ms`: the time of this decision, not of
    its batch."""

    schedule_id: ScheduleId
    revision: int
    edge: SwitchEdge
    due_ts: int
    at_ms: int
    outcome: EdgeOutcome


NOT_HELD = -1
"""In place of a plan revision."""


@dataclass(frozen=True, slots=True)
class OfflineScheduleEdge:
    """An edge whose outcome a device is to tell: an offline one that runs it by itself, or one that nobody could hear when it was
    due. `next_ts`: the second of the slot's next edge, None for the last one. `plan_rev`: the plan that the device held, or
    NOT_HELD."""

    schedule_id: ScheduleId
    device_id: DeviceId
    revision: int
    edge: SwitchEdge
    due_ts: int
    plan_rev: int
    next_ts: int | None
    channel: int = RELAY_CHANNEL
    holds_plan: bool | None = None
    """What the device said first after its return: whether it still holds the plan."""
    resolve_ms: int | None = None
    """Unix ms from which the edge is resolved without a report of the relay; None until the device is seen online."""

    @property
    def is_held(self) -> bool:
        """Whether the device had the edge in its plan."""
        return self.plan_rev != NOT_HELD

    @property
    def relay(self) -> bool:
        return self.edge is SwitchEdge.ON
