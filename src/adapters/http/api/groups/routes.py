"""Group routes: groups and their members. API keys can list groups."""

from __future__ import annotations

from adapters.http.api.groups import schemas as schema
from adapters.http.api.groups.command_schedule_and_rule_routes import WRITE_ERRORS, add_automation_routes, add_command_routes
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import list_response
from domain.groups.bulk_actions import GroupBulkActionService
from domain.groups.service import DeviceGroupService
from domain.kernel.ids import GroupId


def groups_blueprint(groups: DeviceGroupService, actions: GroupBulkActionService) -> ApiBlueprint:
    bp = ApiBlueprint("groups", "Groups")
    _add_read_routes(bp, groups)
    _add_write_routes(bp, groups)
    add_command_routes(bp, actions)
    add_automation_routes(bp, actions)
    return bp


def _add_read_routes(bp: ApiBlueprint, groups: DeviceGroupService) -> None:
    @bp.operation("GET /groups", AllowedCallers.KEY, "List groups", paged=True)
    async def list_groups(query: schema.DeviceGroupsQueryParameters) -> HttpHandlerResult[list[schema.GroupResponse]]:
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
