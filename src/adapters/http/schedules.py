"""Schedules over HTTP: five slots a device. Sessions only."""

from __future__ import annotations

from quart import Blueprint

from adapters.http import schedules_schema as schema
from adapters.http.auth import Access, current_session
from adapters.http.commands_schema import DefinitionReply
from adapters.http.operation import operation
from adapters.http.schema import Done
from domain.kernel.errors import Invalid
from domain.kernel.ids import DeviceId
from domain.schedules.service import ScheduleService

TAG = "Schedules"
READING = {404: "NOT_FOUND"}
SETTING = {
    400: "VALIDATION_ERROR INVALID_JSON UNKNOWN_COMMAND INVALID_PARAMS COMMAND_NEEDS_APPROVAL",
    403: "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED",
    404: "NOT_FOUND",
}
PATH = "/devices/<device_id>/schedules"


def schedules_blueprint(schedules: ScheduleService) -> Blueprint:
    bp = Blueprint("schedules", __name__, url_prefix="/api/v1")
    _looking(bp, schedules)
    _setting(bp, schedules)
    return bp


def _looking(bp: Blueprint, schedules: ScheduleService) -> None:
    @operation(bp, "GET", PATH, tag=TAG, access=Access.SESSION, summary="A device's slots", errors=READING)
    async def list_schedules(device_id: str) -> list[schema.ScheduleReply]:
        """Those that are PENDING or ACTIVE, by slot."""
        found = await schedules.list(current_session(), DeviceId(device_id))
        return [schema.ScheduleReply.of(shown) for shown in found]

    @operation(bp, "GET", f"{PATH}/history", tag=TAG, access=Access.SESSION, summary="Slots that are over", errors=READING)
    async def schedule_history(device_id: str) -> list[schema.ScheduleReply]:
        """The 100 newest COMPLETED and CANCELLED ones, newest first."""
        found = await schedules.history(current_session(), DeviceId(device_id))
        return [schema.ScheduleReply.of(shown) for shown in found]

    @operation(
        bp, "GET", f"{PATH}/context", tag=TAG, access=Access.SESSION, summary="What a slot may run", errors=READING
    )
    async def schedule_context(device_id: str) -> schema.ScheduleContext:
        """The device's commands without those that need approval."""
        found = await schedules.context(current_session(), DeviceId(device_id))
        return schema.ScheduleContext(commands=[DefinitionReply.of(one) for one in found])


def _setting(bp: Blueprint, schedules: ScheduleService) -> None:
    @operation(
        bp, "POST", PATH, tag=TAG, access=Access.SESSION, summary="Fill or replace a slot", status=201, errors=SETTING,
        idempotent=True,
    )  # fmt: skip
    async def put_schedule(device_id: str, body: schema.NewSlot) -> schema.ScheduleReply:
        """What the slot held is cancelled and goes to the history. A Member needs a grant for both commands."""
        shown = await schedules.put(current_session(), DeviceId(device_id), body.slot, body.terms())
        return schema.ScheduleReply.of(shown)

    @operation(
        bp, "PUT", f"{PATH}/<slot>", tag=TAG, access=Access.SESSION, summary="Change a slot", errors=SETTING
    )
    async def change_schedule(device_id: str, slot: str, body: schema.SlotChanges) -> schema.ScheduleReply:
        """What is left out stays. An empty slot is filled when `onTs` and `offTs` are given, and is not found otherwise."""
        which = _agreed(_slot(slot), body.slot)
        shown = await schedules.edit(current_session(), DeviceId(device_id), which, body.changes())
        return schema.ScheduleReply.of(shown)

    @operation(
        bp, "PUT", PATH, tag=TAG, access=Access.SESSION, summary="Change the slot named in the body", errors=SETTING
    )
    async def change_named_schedule(device_id: str, body: schema.SlotChanges) -> schema.ScheduleReply:
        """As with the slot in the path."""
        which = _agreed(None, body.slot)
        shown = await schedules.edit(current_session(), DeviceId(device_id), which, body.changes())
        return schema.ScheduleReply.of(shown)

    @operation(
        bp, "DELETE", f"{PATH}/<slot>", tag=TAG, access=Access.SESSION, summary="Cancel a slot",
        errors={400: "VALIDATION_ERROR", 403: "ROLE_REQUIRED", **READING},
    )  # fmt: skip
    async def cancel_schedule(device_id: str, slot: str) -> Done:
        """It is CANCELLED and stays in the history. Nothing more is switched, not even off."""
        await schedules.cancel(current_session(), DeviceId(device_id), _agreed(_slot(slot), None))
        return Done()


def _slot(text: str) -> int | None:
    """The slot in a path; `null` is what some clients write when the body says it."""
    if text == "null":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Invalid.field("slot", "is 0 to 4.")
    return int(text)


def _agreed(in_path: int | None, in_body: int | None) -> int:
    if in_path is not None and in_body is not None and in_path != in_body:
        raise Invalid.field("slot", f"is {in_path} in the path and {in_body} in the body; name one slot.")
    slot = in_path if in_path is not None else in_body
    if slot is None:
        raise Invalid.field("slot", "is required, in the path or in the body.")
    return slot
