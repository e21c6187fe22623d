"""Schedule routes: a device has five slots. Sessions only."""

from __future__ import annotations

from adapters.http.api.schedules import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import page_response
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
from domain.schedules.service import ScheduleOccurrenceService, ScheduleService

WRITE_ERRORS = {
    400: "UNKNOWN_COMMAND INVALID_PARAMS COMMAND_NEEDS_APPROVAL",
    403: "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED",
}
SCHEDULES_PATH = "/devices/<device_id>/schedules"


def schedules_blueprint(schedules: ScheduleService, calendar: ScheduleOccurrenceService) -> ApiBlueprint:
    bp = ApiBlueprint("schedules", "Schedules")

    @bp.operation(f"GET {SCHEDULES_PATH}", AllowedCallers.SESSION, "List a device's schedules")
    async def list_schedules(device_id: DeviceId) -> list[schema.ScheduleResponse]:
        """The PENDING and ACTIVE schedules, sorted by slot."""
        found = await schedules.list(current_session(), device_id)
        return [schema.ScheduleResponse.from_domain(shown) for shown in found]

    @bp.operation(f"GET {SCHEDULES_PATH}/history", AllowedCallers.SESSION, "Schedule history", paged=True)
    async def list_schedule_history(
        device_id: DeviceId, query: schema.EndedSchedulesQueryParameters
    ) -> HttpHandlerResult[list[schema.ScheduleResponse]]:
        """The COMPLETED and CANCELLED schedules, newest first."""
        found = await schedules.list_history(current_session(), device_id, limit=query.limit + 1, before=query.before)
        return page_response(found, query.limit, schema.ScheduleResponse.from_domain, lambda view: view.schedule.schedule_id)

    @bp.operation(f"GET {SCHEDULES_PATH}/context", AllowedCallers.SESSION, "List commands for schedules")
    async def get_schedule_context(device_id: DeviceId) -> schema.ScheduleContextResponse:
        """The device's commands, except those that need approval."""
        found = await schedules.list_schedulable_commands(current_session(), device_id)
        return schema.ScheduleContextResponse.of(commands=found)

    @bp.operation(
        f"POST {SCHEDULES_PATH}",
        AllowedCallers.SESSION,
        "Create or replace a schedule",
        status=201,
        errors=WRITE_ERRORS,
        idempotent=True,
    )
    async def create_schedule(device_id: DeviceId, body: schema.ScheduleCreateRequest) -> schema.ScheduleResponse:
        """Cancels the present schedule of the slot and moves it to the history. A Member needs a grant for both commands."""
        shown = await schedules.put(current_session(), device_id, body.slot, body.to_input())
        return schema.ScheduleResponse.from_domain(shown)

    @bp.operation(f"PUT {SCHEDULES_PATH}/<slot>", AllowedCallers.SESSION, "Change a schedule", errors=WRITE_ERRORS)
    async def update_schedule(device_id: DeviceId, slot: str, body: schema.ScheduleUpdateRequest) -> schema.ScheduleResponse:
        """Omitted fields keep their value. In an empty slot, `onTs` and `offTs` create a schedule; without them: 404."""
        which = _resolve_slot(_parse_slot(slot), body.slot)
        shown = await schedules.update(current_session(), device_id, which, body.to_changes())
        return schema.ScheduleResponse.from_domain(shown)

    @bp.operation(
        f"PUT {SCHEDULES_PATH}", AllowedCallers.SESSION, "Change a schedule by the slot in the body", errors=WRITE_ERRORS
    )
    async def update_named_schedule(device_id: DeviceId, body: schema.ScheduleUpdateRequest) -> schema.ScheduleResponse:
        """Works like the call with the slot in the path."""
        which = _resolve_slot(None, body.slot)
        shown = await schedules.update(current_session(), device_id, which, body.to_changes())
        return schema.ScheduleResponse.from_domain(shown)

    @bp.operation(f"DELETE {SCHEDULES_PATH}/<slot>", AllowedCallers.SESSION, "Cancel a schedule", errors={403: "ROLE_REQUIRED"})
    async def cancel_schedule(device_id: DeviceId, slot: str) -> None:
        """The schedule becomes CANCELLED and stays in the history. It switches nothing any more, not even off."""
        await schedules.cancel(current_session(), device_id, _resolve_slot(_parse_slot(slot), None))

    @bp.operation("GET /schedules/occurrences", AllowedCallers.SESSION, "List planned switches")
    async def list_occurrences(query: schema.ScheduleOccurrencesQueryParameters) -> schema.OccurrencesResponse:
        """The switches that are still to come, of all devices, from `from` until before `until`, at most 35 days apart; with the
        changes of the clocks in each schedule's zone. At most 1,500; `complete` is false if there are more."""
        return schema.OccurrencesResponse.from_domain(await calendar.list(current_session(), query.from_, query.until))

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
