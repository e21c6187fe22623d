"""Group routes: groups and their members, and what is done to all members at once. API keys can list groups and send commands."""

from __future__ import annotations

from typing import Any

from adapters.http.api.groups import schemas as schema
from adapters.http.api.rules.schemas import RuleCreateRequest, to_rule_fields
from adapters.http.api.schedules.schemas import ScheduleCreateRequest
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.paging import list_response
from adapters.http.core.request_handling import HandlerResult
from domain.groups.bulk_actions import GroupBulkActionService
from domain.groups.service import DeviceGroupService
from domain.kernel.ids import GroupId

TAG = "Groups"
WRITE_ERRORS = {403: "ROLE_REQUIRED"}


def groups_blueprint(groups: DeviceGroupService, actions: GroupBulkActionService) -> ApiBlueprint:
    bp = ApiBlueprint("groups", TAG)
    _add_read_routes(bp, groups)
    _add_write_routes(bp, groups)
    _add_command_routes(bp, actions)
    _add_automation_routes(bp, actions)
    return bp


def _add_read_routes(bp: ApiBlueprint, groups: DeviceGroupService) -> None:
    @bp.operation("GET /groups", AllowedCallers.KEY, "List groups", paged=True)
    async def list_groups(query: schema.DeviceGroupsQuery) -> HandlerResult[list[schema.GroupResponse]]:
        """Oldest first. An API key sees the groups of the devices that its grants cover."""
        found = await groups.list(current_caller(), query.project_id)
        return list_response(found, query, schema.GroupResponse.from_domain, lambda view: view.group.group_id)

    @bp.operation("GET /groups/<group_id>", AllowedCallers.KEY, "Get a group")
    async def get_group(group_id: GroupId) -> schema.GroupDetailsResponse:
        """With its members, oldest first."""
        return schema.GroupDetailsResponse.from_domain(await groups.get(current_caller(), group_id))


def _add_write_routes(bp: ApiBlueprint, groups: DeviceGroupService) -> None:
    @bp.operation(
        "POST /groups",
        AllowedCallers.SESSION,
        "Create a group",
        status=201,
        errors={**WRITE_ERRORS, 404: "NOT_FOUND", 409: "GROUP_EXISTS GROUP_LIMIT GROUP_FULL"},
        idempotent=True,
    )
    async def create_group(body: schema.GroupCreateRequest) -> schema.GroupDetailsResponse:
        """A group belongs to one project; a device can be a member of many groups. Requires the role Admin or Owner."""
        made = await groups.create(
            current_session(),
            body.name,
            project_id=body.project_id,
            description=body.description,
            device_ids=body.device_ids or (),
        )
        return schema.GroupDetailsResponse.from_domain(made)

    @bp.operation(
        "PATCH /groups/<group_id>", AllowedCallers.SESSION, "Change a group", errors={**WRITE_ERRORS, 409: "GROUP_EXISTS"}
    )
    async def update_group(group_id: GroupId, body: schema.GroupUpdateRequest) -> None:
        """Its name or description. Requires the role Admin or Owner."""
        await groups.update(current_session(), group_id, body.to_changes())

    @bp.operation("DELETE /groups/<group_id>", AllowedCallers.SESSION, "Delete a group", errors=WRITE_ERRORS)
    async def delete_group(group_id: GroupId) -> None:
        """Also deletes the grants on it; the devices stay. Requires the role Admin or Owner."""
        await groups.delete(current_session(), group_id)

    @bp.operation(
        "PATCH /groups/<group_id>/devices",
        AllowedCallers.SESSION,
        "Change the members of a group",
        errors={**WRITE_ERRORS, 409: "GROUP_FULL REQUEST_PENDING"},
    )
    async def update_group_members(group_id: GroupId, body: schema.GroupMembersRequest) -> schema.GroupMembersResponse:
        """Grants on the group cover a new member, and no longer a removed one, from the next call on. Requires the role Admin or
        Owner."""
        change = await groups.change_members(current_session(), group_id, body.add or (), body.remove or ())
        return schema.GroupMembersResponse.of(change, device_count=change.total)


def _add_command_routes(bp: ApiBlueprint, actions: GroupBulkActionService) -> None:
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


def _add_automation_routes(bp: ApiBlueprint, actions: GroupBulkActionService) -> None:
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
