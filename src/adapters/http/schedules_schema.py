"""The shapes of schedules on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from adapters.http.commands_schema import DefinitionReply
from adapters.http.schema import LINE, Body, Change, OneLine, Reply, Timestamp
from domain.kernel.clock import SECOND_MS, iso
from domain.schedules.model import (
    DEFAULT_GRACE_S,
    PLAIN_OFF,
    PLAIN_ON,
    SLOTS,
    Misfire,
    Outcome,
    Schedule,
    ScheduleStatus,
    SlotCommand,
)
from domain.schedules.policy import MAX_GRACE_S, MAX_LABEL, MILLISECONDS_FROM
from domain.schedules.service import Shown, Terms


def _seconds(value: int) -> int:
    if value >= MILLISECONDS_FROM:
        raise ValueError(f"is in Unix seconds; {str(value)[:24]} looks like milliseconds. Divide it by 1000")
    return value


Slot = Annotated[int, Field(ge=0, le=SLOTS - 1, examples=[0])]
Seconds = Annotated[
    int,
    Field(ge=1, description="Unix seconds.", examples=[1_800_000_000], json_schema_extra={"maximum": MILLISECONDS_FROM - 1}),
    AfterValidator(_seconds),
]
Label = Annotated[str, OneLine, Field(max_length=MAX_LABEL, json_schema_extra=LINE)]
Zone = Annotated[str, Field(max_length=64, examples=["Europe/Berlin"], description="An IANA time zone; the rrule's clock.")]
RecurrenceRule = Annotated[
    str, Field(max_length=500, examples=["FREQ=WEEKLY;BYDAY=MO,FR"], description="RFC 5545, one rule, without DTSTART.")
]
Grace = Annotated[int, Field(ge=0, le=MAX_GRACE_S, description="How late a missed edge may still run.")]
_WHEN_NULL: dict[str, Any] = {"on_command": PLAIN_ON, "off_command": PLAIN_OFF, "rrule": None, "label": "", "timezone": "UTC"}
"""What `null` means where it means anything."""


class OrderBody(Body):
    command: str = Field(min_length=1, max_length=64, examples=["ON"])
    params: Any = None

    def order(self) -> SlotCommand:
        return SlotCommand(self.command, self.params)


class SlotChanges(Change):
    """What is left out stays. `null` brings the default back."""

    nullable = frozenset({"slot", *_WHEN_NULL})

    slot: Slot | None = Field(default=None, description="Which slot, where the path does not say.")
    on_ts: Seconds | None = None
    off_ts: Seconds | None = None
    label: Label | None = None
    enabled: bool | None = None
    on_command: OrderBody | None = None
    off_command: OrderBody | None = None
    rrule: RecurrenceRule | None = None
    timezone: Zone | None = None
    misfire: Misfire | None = None
    misfire_grace_seconds: Grace | None = None

    def changes(self) -> dict[str, Any]:
        """By the names of `Terms`."""
        given: dict[str, Any] = {}
        for name in self.model_fields_set - {"slot"}:
            value = getattr(self, name)
            if isinstance(value, OrderBody):
                value = value.order()
            elif value is None:
                value = _WHEN_NULL[name]
            given["misfire_grace_s" if name == "misfire_grace_seconds" else name] = value
        return given


class NewSlot(Body):
    """Replaces what the slot holds."""

    slot: Slot
    on_ts: Seconds
    off_ts: Seconds = Field(description="Unix seconds. Before `onTs`: off first.")
    label: Label | None = None
    enabled: bool | None = Field(default=None, description="true")
    on_command: OrderBody | None = Field(default=None, description="Plain ON.")
    off_command: OrderBody | None = Field(default=None, description="Plain OFF.")
    rrule: RecurrenceRule | None = None
    timezone: Zone | None = None
    misfire: Misfire | None = Field(default=None, description="What becomes of an edge that was missed: FIRE late, or SKIP.")
    misfire_grace_seconds: Grace | None = Field(default=None, description=f"With FIRE, how late it may be: {DEFAULT_GRACE_S}.")

    def terms(self) -> Terms:
        return Terms(
            on_ts=self.on_ts,
            off_ts=self.off_ts,
            label=self.label or "",
            enabled=self.enabled is not False,
            on_command=self.on_command.order() if self.on_command else PLAIN_ON,
            off_command=self.off_command.order() if self.off_command else PLAIN_OFF,
            rrule=self.rrule,
            timezone=self.timezone or "UTC",
            misfire=self.misfire or Misfire.FIRE,
            misfire_grace_s=DEFAULT_GRACE_S if self.misfire_grace_seconds is None else self.misfire_grace_seconds,
        )


class OrderReply(Reply):
    command: str
    params: Any

    @classmethod
    def of(cls, order: SlotCommand) -> OrderReply:
        return cls(command=order.command, params=order.params)


class ScheduleReply(Reply):
    schedule_id: str
    device_id: str
    slot: int
    on_ts: int
    off_ts: int
    label: str
    enabled: bool
    status: ScheduleStatus
    on_command: OrderReply
    off_command: OrderReply
    rrule: str | None
    timezone: str
    misfire: Misfire
    misfire_grace_seconds: int
    next_fire_at: Timestamp | None
    last_fired_at: Timestamp | None
    last_outcome: Outcome | None
    firmware_synced: bool = Field(description="The device itself holds this slot as it is, and runs it while it is away.")

    @classmethod
    def of(cls, shown: Shown) -> ScheduleReply:
        schedule: Schedule = shown.schedule
        return cls(
            schedule_id=schedule.schedule_id,
            device_id=schedule.device_id,
            slot=schedule.slot,
            on_ts=schedule.on_ts,
            off_ts=schedule.off_ts,
            label=schedule.label,
            enabled=schedule.enabled,
            status=schedule.status,
            on_command=OrderReply.of(schedule.on_command),
            off_command=OrderReply.of(schedule.off_command),
            rrule=schedule.rrule,
            timezone=schedule.timezone,
            misfire=schedule.misfire,
            misfire_grace_seconds=schedule.misfire_grace_s,
            next_fire_at=None if schedule.next_fire_ts is None else iso(schedule.next_fire_ts * SECOND_MS),
            last_fired_at=None if schedule.last_fired_ms is None else iso(schedule.last_fired_ms),
            last_outcome=schedule.last_outcome,
            firmware_synced=shown.firmware_synced,
        )


class ScheduleContext(Reply):
    """What a slot of this device may run: its commands but those that need approval."""

    commands: list[DefinitionReply]
