"""What is done to all members of a group: commands, schedules, rules."""

from __future__ import annotations

from typing import Any

from adapters.http.api.groups import schemas as schema
from adapters.http.api.rules.schemas import RuleCreateRequest, to_rule_fields
from adapters.http.api.schedules.schemas import ScheduleCreateRequest
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.groups.bulk_actions import GroupBulkActionService
from domain.kernel.ids import GroupId

WRITE_ERRORS = {403: "ROLE_REQUIRED"}


def add_command_routes(bp: ApiBlueprint, actions: GroupBulkActionService) -> None:
    @bp.operation(
        "POST /groups/<group_id>/command", AllowedCallers.KEY, "Send a command to a group", affects="Commands", idempotent=True
    )
    async def send_group_command(group_id: GroupId, body: schema.GroupCommandRequest) -> schema.GroupCommandResponse:
        """Each member is decided on its own, as by a single command: its definition, the caller's grants and limits, approval. An
        API key sends to the members that its grants cover."""
        report = await actions.send(current_caller(), group_id, body.to_command())
        return schema.GroupCommandResponse.from_domain(report)

    @bp.operation(
        "POST /groups/<group_id>/command/preview", AllowedCallers.KEY, "Preview a command to a group", affects="Commands"
    )
    async def preview_group_command(group_id: GroupId, body: schema.GroupCommandRequest) -> schema.GroupCommandResponse:
        """Who is meant, and what would come of it now. Sends nothing, and uses up no rate limit."""
        report = await actions.preview(current_caller(), group_id, body.to_command())
        return schema.GroupCommandResponse.from_domain(report, is_preview=True)


def add_automation_routes(bp: ApiBlueprint, actions: GroupBulkActionService) -> None:
    @bp.operation(
        "POST /groups/<group_id>/schedules",
        AllowedCallers.SESSION,
        "Create or replace a schedule of all members",
        affects="Schedules",
        errors=WRITE_ERRORS,
        idempotent=True,
    )
    async def create_group_schedule(group_id: GroupId, body: ScheduleCreateRequest) -> schema.GroupChangeResponse:
        """A copy for each member; a device that joins later gets none."""
        report = await actions.put_schedule(current_session(), group_id, body.slot, body.to_input())
        return schema.GroupChangeResponse.from_domain(report)

    @bp.operation(
        "DELETE /groups/<group_id>/schedules/<slot>",
        AllowedCallers.SESSION,
        "Cancel a schedule of all members",
        affects="Schedules",
        errors=WRITE_ERRORS,
    )
    async def cancel_group_schedule(group_id: GroupId, slot: int) -> schema.GroupChangeResponse:
        """Cancels whatever the slot of each member holds."""
        report: Any = await actions.cancel_schedule(current_session(), group_id, slot)
        return schema.GroupChangeResponse.from_domain(report)

    @bp.operation(
        "POST /groups/<group_id>/rules",
        AllowedCallers.SESSION,
        "Create a rule on all members",
        affects="Rules",
        errors=WRITE_ERRORS,
        idempotent=True,
    )
    async def create_group_rule(group_id: GroupId, body: RuleCreateRequest) -> schema.GroupRuleResponse:
        """A copy for each member that has no rule of this name; the others are REFUSED with `RULE_EXISTS`."""
        report = await actions.create_rule(current_session(), group_id, to_rule_fields(body))
        return schema.GroupRuleResponse.from_domain(report)
