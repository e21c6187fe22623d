"""Schedules: a device has five slots. Sessions only."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from adapters.http.api.commands import CommandDefinitionResponse
from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import PageLimit, PageQueryParameters, TimedPageQueryParameters, list_response, page_response
from adapters.http.core.schemas import (
    SINGLE_LINE_SCHEMA,
    ChannelNumber,
    EndedAt,
    EndingResponse,
    EnumValue,
    InstantMs,
    OneLine,
    PatchBody,
    QueryParametersModel,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from domain.devices.channels import RELAY_CHANNEL
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
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
    ScheduleOccurrenceService,
    ScheduleOccurrencesResult,
    ScheduleService,
    ScheduleWithSyncState,
)


def _reject_milliseconds(value: int) -> int:
    if value >= MILLISECONDS_THRESHOLD:
        raise ValueError(f"is in Unix seconds; {str(value)[:24]} looks like milliseconds. Divide it by 1000")
    return value


SlotNumber = Annotated[int, Field(ge=0, le=SLOTS_PER_DEVICE - 1, examples=[0])]
UnixSeconds = Annotated[
    int,
    Field(ge=1, description="Unix seconds.", examples=[1_800_000_000], json_schema_extra={"maximum": MILLISECONDS_THRESHOLD - 1}),
    AfterValidator(_reject_milliseconds),
]
Label = Annotated[str, OneLine, Field(max_length=MAX_LABEL_LENGTH, json_schema_extra=SINGLE_LINE_SCHEMA)]
TimeZoneName = Annotated[
    str,
    Field(
        min_length=1, max_length=64, examples=["Europe/Berlin"], description="An IANA time zone, in which `rrule` is evaluated."
    ),
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
    channel: ChannelNumber = RELAY_CHANNEL

    def to_slot_command(self) -> ScheduledCommand:
        return ScheduledCommand(self.command, self.params, self.channel)


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
            timezone="UTC" if self.timezone is None else self.timezone,
            misfire=self.misfire or MisfirePolicy.FIRE,
            misfire_grace_s=DEFAULT_MISFIRE_GRACE_S if self.misfire_grace_seconds is None else self.misfire_grace_seconds,
        )


class SlotCommandResponse(ResponseModel):
    command: str
    params: Any
    channel: int


ENDED = {ScheduleStatus.COMPLETED, ScheduleStatus.CANCELLED}


class ScheduleResponse(EndingResponse):
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
    ended_at: EndedAt
    firmware_synced: bool = Field(description="The device has stored this schedule and runs it while it is offline.")

    @classmethod
    def from_domain(cls, shown: ScheduleWithSyncState) -> ScheduleResponse:
        schedule = shown.schedule
        return cls.of(
            schedule,
            shown,
            ended_at=schedule.updated_ms if schedule.status in ENDED else None,
            misfire_grace_seconds=schedule.misfire_grace_s,
            next_fire_at=None if schedule.next_fire_ts is None else schedule.next_fire_ts * SECOND_MS,
        )


class ScheduleOccurrencesQueryParameters(QueryParametersModel):
    since: InstantMs | None = Field(default=None, description="Unix milliseconds or ISO 8601, inclusive. Default: now.")
    until: InstantMs | None = Field(
        default=None, description="Unix milliseconds or ISO 8601, exclusive. Default: seven days after `since`."
    )


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
    channel: int
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


class EndedSchedulesQueryParameters(TimedPageQueryParameters):
    limit: PageLimit = HISTORY_LIMIT


WRITE_ERRORS = {
    400: "UNKNOWN_CHANNEL UNKNOWN_COMMAND INVALID_PARAMS COMMAND_NEEDS_APPROVAL",
    403: "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED CHANNEL_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED",
    409: "SLOT_TAKEN",
}
SCHEDULES_PATH = "/devices/<device_id>/schedules"


def schedules_blueprint(schedules: ScheduleService, calendar: ScheduleOccurrenceService) -> ApiBlueprint:
    bp = ApiBlueprint("schedules", "Schedules")

    @bp.operation(f"GET {SCHEDULES_PATH}", AllowedCallers.SESSION, "List a device's schedules")
    async def list_schedules(device_id: DeviceId, query: PageQueryParameters) -> HttpHandlerResult[list[ScheduleResponse]]:
        """The PENDING and ACTIVE schedules, sorted by slot."""
        found = await schedules.list(current_session(), device_id)
        return list_response(found, query, ScheduleResponse.from_domain, lambda view: (view.schedule.slot,))

    @bp.operation(f"GET {SCHEDULES_PATH}/history", AllowedCallers.SESSION, "Schedule history")
    async def list_schedule_history(
        device_id: DeviceId, query: EndedSchedulesQueryParameters
    ) -> HttpHandlerResult[list[ScheduleResponse]]:
        """The COMPLETED and CANCELLED schedules, newest first. `since` and `until` are about the time at which they ended."""
        after = query.position(int, int)
        found = await schedules.list_history(current_session(), device_id, limit=query.limit + 1, after=after, ended=query.span)
        return page_response(
            found, query, ScheduleResponse.from_domain, lambda view: (view.schedule.updated_ms, view.schedule.seq)
        )

    @bp.operation(f"GET {SCHEDULES_PATH}/context", AllowedCallers.SESSION, "List commands for schedules")
    async def get_schedule_context(device_id: DeviceId) -> ScheduleContextResponse:
        """The device's commands, except those that need approval."""
        return ScheduleContextResponse.of(commands=await schedules.list_schedulable_commands(current_session(), device_id))

    @bp.operation(
        f"POST {SCHEDULES_PATH}",
        AllowedCallers.SESSION,
        "Create or replace a schedule",
        status=201,
        changes=f"{SCHEDULES_PATH}/<slot>",
        errors=WRITE_ERRORS,
        idempotent=True,
    )
    async def create_schedule(device_id: DeviceId, body: ScheduleCreateRequest) -> ScheduleResponse:
        """Cancels the present schedule of the slot and moves it to the history. A Member needs a grant for both commands."""
        shown = await schedules.put(current_session(), device_id, body.slot, body.to_input())
        return ScheduleResponse.from_domain(shown)

    @bp.operation(f"GET {SCHEDULES_PATH}/<slot>", AllowedCallers.SESSION, "Get a schedule")
    async def get_schedule(device_id: DeviceId, slot: str) -> ScheduleResponse:
        """The PENDING or ACTIVE schedule of the slot."""
        return ScheduleResponse.from_domain(
            await schedules.get(current_session(), device_id, _resolve_slot(_parse_slot(slot), None))
        )

    @bp.operation(f"PUT {SCHEDULES_PATH}/<slot>", AllowedCallers.SESSION, "Change a schedule", errors=WRITE_ERRORS)
    async def update_schedule(device_id: DeviceId, slot: str, body: ScheduleUpdateRequest) -> ScheduleResponse:
        """Omitted fields keep their value. In an empty slot, `onTs` and `offTs` create a schedule; without them: 404."""
        which = _resolve_slot(_parse_slot(slot), body.slot)
        shown = await schedules.update(current_session(), device_id, which, body.to_changes())
        return ScheduleResponse.from_domain(shown)

    @bp.operation(
        f"PUT {SCHEDULES_PATH}",
        AllowedCallers.SESSION,
        "Change a schedule by the slot in the body",
        errors=WRITE_ERRORS,
        changes=f"{SCHEDULES_PATH}/<slot>",
    )
    async def update_named_schedule(device_id: DeviceId, body: ScheduleUpdateRequest) -> ScheduleResponse:
        """Works like the call with the slot in the path."""
        shown = await schedules.update(current_session(), device_id, _resolve_slot(None, body.slot), body.to_changes())
        return ScheduleResponse.from_domain(shown)

    @bp.operation(f"DELETE {SCHEDULES_PATH}/<slot>", AllowedCallers.SESSION, "Cancel a schedule", errors={403: "ROLE_REQUIRED"})
    async def cancel_schedule(device_id: DeviceId, slot: str) -> None:
        """The schedule becomes CANCELLED and stays in the history. It switches nothing any more, not even off."""
        await schedules.cancel(current_session(), device_id, _resolve_slot(_parse_slot(slot), None))

    @bp.operation("GET /schedules/occurrences", AllowedCallers.SESSION, "List planned switches")
    async def list_occurrences(query: ScheduleOccurrencesQueryParameters) -> OccurrencesResponse:
        """The switches that are still to come, of all devices, from `since` until before `until`, at most 35 days apart; with the
        changes of the clocks in each schedule's zone. At most 1,500; `complete` is false if there are more."""
        return OccurrencesResponse.from_domain(await calendar.list(current_session(), query.since, query.until))

    return bp


def _parse_slot(text: str) -> int | None:
    """The slot in a path; some clients write `null` when the slot is in the body."""
    if text == "null":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValidationFailed.for_field("slot", "must be 0 to 4.")
    return int(text)


def _resolve_slot(in_path: int | None, in_body: int | None) -> int:
    if in_path is not None and in_body is not None and in_path != in_body:
        raise ValidationFailed.for_field("slot", f"is {in_path} in the path and {in_body} in the body; name one slot.")
    slot = in_path if in_path is not None else in_body
    if slot is None:
        raise ValidationFailed.for_field("slot", "is required, in the path or in the body.")
    return slot
