"""Request and response models of schedules."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from adapters.http.api.commands.schemas import CommandDefinitionResponse
from adapters.http.core.schemas import (
    SINGLE_LINE_SCHEMA,
    EnumValue,
    IdText,
    OneLine,
    PatchBody,
    QueryParametersModel,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import ScheduleId
from domain.schedules.model import (
    DEFAULT_MISFIRE_GRACE_S,
    MIN_MISFIRE_GRACE_S,
    PLAIN_OFF,
    PLAIN_ON,
    SLOTS_PER_DEVICE,
    EdgeOutcome,
    MisfirePolicy,
    ScheduledCommand,
    ScheduleStatus,
    SwitchEdge,
)
from domain.schedules.service import (
    HISTORY_LIMIT,
    MAX_LABEL_LENGTH,
    MAX_MISFIRE_GRACE_S,
    MILLISECONDS_THRESHOLD,
    PlannedScheduleEdge,
    ScheduleInput,
    ScheduleOccurrencesResult,
    ScheduleWithSyncState,
)


def _reject_milliseconds(value: int) -> int:
    if value >= MILLISECONDS_THRESHOLD:
        raise ValueError(f"is in Unix seconds; {str(value)[:24]} looks like milliseconds. Divide it by 1000")
    return value


UnixMs = Annotated[int, Field(ge=0, le=2**52)]
SlotNumber = Annotated[int, Field(ge=0, le=SLOTS_PER_DEVICE - 1, examples=[0])]
UnixSeconds = Annotated[
    int,
    Field(ge=1, description="Unix seconds.", examples=[1_800_000_000], json_schema_extra={"maximum": MILLISECONDS_THRESHOLD - 1}),
    AfterValidator(_reject_milliseconds),
]
Label = Annotated[str, OneLine, Field(max_length=MAX_LABEL_LENGTH, json_schema_extra=SINGLE_LINE_SCHEMA)]
TimeZoneName = Annotated[
    str, Field(max_length=64, examples=["Europe/Berlin"], description="An IANA time zone, in which `rrule` is evaluated.")
]
RruleText = Annotated[
    str,
    Field(max_length=500, examples=["FREQ=WEEKLY;BYDAY=MO,FR"], description="One recurrence rule of RFC 5545, without DTSTART."),
]
GraceSeconds = Annotated[
    int, Field(ge=MIN_MISFIRE_GRACE_S, le=MAX_MISFIRE_GRACE_S, description="How many seconds late a missed switch may still run.")
]
_NULL_DEFAULTS: dict[str, Any] = {"on_command": PLAIN_ON, "off_command": PLAIN_OFF, "rrule": None, "label": "", "timezone": "UTC"}
"""The values that `null` restores."""


class SlotCommandRequest(RequestBodyModel):
    command: str = Field(min_length=1, max_length=64, examples=["ON"])
    params: Any = None

    def to_slot_command(self) -> ScheduledCommand:
        return ScheduledCommand(self.command, self.params)


class ScheduleUpdateRequest(PatchBody):
    """Omitted fields keep their value; `null` restores the default."""

    nullable = frozenset({"slot", *_NULL_DEFAULTS})

    slot: SlotNumber | None = Field(default=None, description="The slot, if the path does not name it.")
    on_ts: UnixSeconds | None = None
    off_ts: UnixSeconds | None = None
    label: Label | None = None
    enabled: bool | None = None
    on_command: SlotCommandRequest | None = None
    off_command: SlotCommandRequest | None = None
    rrule: RruleText | None = None
    timezone: TimeZoneName | None = None
    misfire: EnumValue[MisfirePolicy] | None = None
    misfire_grace_seconds: GraceSeconds | None = None

    def to_changes(self) -> dict[str, Any]:
        """The changed fields by their names in `ScheduleInput`."""
        given: dict[str, Any] = {}
        for name in self.model_fields_set - {"slot"}:
            value = getattr(self, name)
            if isinstance(value, SlotCommandRequest):
                value = value.to_slot_command()
            elif value is None:
                value = _NULL_DEFAULTS[name]
            given["misfire_grace_s" if name == "misfire_grace_seconds" else name] = value
        return given


class ScheduleCreateRequest(RequestBodyModel):
    """Replaces the present schedule of the slot."""

    slot: SlotNumber
    on_ts: UnixSeconds
    off_ts: UnixSeconds = Field(description="Unix seconds. If before `onTs`, the relay is switched off first.")
    label: Label | None = None
    enabled: bool | None = Field(default=None, description="Default: true.")
    on_command: SlotCommandRequest | None = Field(default=None, description="Default: ON without parameters.")
    off_command: SlotCommandRequest | None = Field(default=None, description="Default: OFF without parameters.")
    rrule: RruleText | None = None
    timezone: TimeZoneName | None = None
    misfire: EnumValue[MisfirePolicy] | None = Field(
        default=None, description="How to handle a missed switch: FIRE late, or SKIP."
    )
    misfire_grace_seconds: GraceSeconds | None = Field(
        default=None, description=f"With FIRE, how many seconds late it may run. Default: {DEFAULT_MISFIRE_GRACE_S}."
    )

    def to_input(self) -> ScheduleInput:
        return ScheduleInput(
            on_ts=self.on_ts,
            off_ts=self.off_ts,
            label=self.label or "",
            enabled=self.enabled is not False,
            on_command=self.on_command.to_slot_command() if self.on_command else PLAIN_ON,
            off_command=self.off_command.to_slot_command() if self.off_command else PLAIN_OFF,
            rrule=self.rrule,
            timezone=self.timezone or "UTC",
            misfire=self.misfire or MisfirePolicy.FIRE,
            misfire_grace_s=DEFAULT_MISFIRE_GRACE_S if self.misfire_grace_seconds is None else self.misfire_grace_seconds,
        )


class SlotCommandResponse(ResponseModel):
    command: str
    params: Any


class ScheduleResponse(ResponseModel):
    schedule_id: str
    device_id: str
    slot: int
    on_ts: int
    off_ts: int
    label: str
    enabled: bool
    status: ScheduleStatus
    on_command: SlotCommandResponse
    off_command: SlotCommandResponse
    rrule: str | None
    timezone: str
    misfire: MisfirePolicy
    misfire_grace_seconds: int
    next_fire_at: Timestamp | None
    next_edge: SwitchEdge | None = Field(description="What `nextFireAt` runs: the `on` or the `off` command.")
    last_fired_at: Timestamp | None
    last_outcome: EdgeOutcome | None
    firmware_synced: bool = Field(description="The device has stored this schedule and runs it while it is offline.")

    @classmethod
    def from_domain(cls, shown: ScheduleWithSyncState) -> ScheduleResponse:
        schedule = shown.schedule
        return cls.of(
            schedule,
            shown,
            misfire_grace_seconds=schedule.misfire_grace_s,
            next_fire_at=None if schedule.next_fire_ts is None else schedule.next_fire_ts * SECOND_MS,
        )


class ScheduleOccurrencesQueryParameters(QueryParametersModel):
    from_: UnixMs | None = Field(default=None, alias="from", description="Unix milliseconds, inclusive. Default: now.")
    until: UnixMs | None = Field(default=None, description="Unix milliseconds, exclusive. Default: seven days after `from`.")


class OccurrenceResponse(ResponseModel):
    """One planned switch. `enabled` is false for a paused slot, which does not switch."""

    schedule_id: str
    device_id: str
    device_name: str
    slot: int
    label: str
    enabled: bool
    edge: SwitchEdge
    at: Timestamp
    command: str
    params: Any
    rrule: str | None
    timezone: str

    @classmethod
    def from_domain(cls, occurrence: PlannedScheduleEdge) -> OccurrenceResponse:
        schedule = occurrence.schedule
        order = schedule.on_command if occurrence.edge is SwitchEdge.ON else schedule.off_command
        return cls.of(schedule, occurrence, order, device_name=occurrence.device.name, at=occurrence.at_ts * SECOND_MS)


class OccurrencesResponse(ResponseModel):
    occurrences: list[OccurrenceResponse]
    complete: bool

    @classmethod
    def from_domain(cls, calendar: ScheduleOccurrencesResult) -> OccurrencesResponse:
        return cls(
            occurrences=[OccurrenceResponse.from_domain(each) for each in calendar.occurrences], complete=calendar.is_complete
        )


class ScheduleContextResponse(ResponseModel):
    """The commands that a schedule of this device may run: all except those that need approval."""

    commands: list[CommandDefinitionResponse]


class EndedSchedulesQueryParameters(QueryParametersModel):
    limit: Annotated[int, Field(ge=1, le=200)] = HISTORY_LIMIT
    before: IdText[ScheduleId] | None = Field(
        default=None, description="The id of an ended schedule: only those after it in the list. The `Link` header carries it."
    )
