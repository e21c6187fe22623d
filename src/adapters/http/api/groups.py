"""Groups of devices: their members, what is done to all members at once (commands, schedules, rules), and grants on a group. API
keys list groups and send commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field

from adapters.http.api.devices import DescriptionText
from adapters.http.api.grants import (
    GrantChangedResponse,
    GrantCreatedResponse,
    GrantResponse,
    GrantUpdateRequest,
    GroupGrantCreateRequest,
)
from adapters.http.api.rules import RuleCreateRequest
from adapters.http.api.schedules import ScheduleCreateRequest
from adapters.http.core.callers import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, SearchPageQueryParameters, list_response
from adapters.http.core.schemas import (
    ChannelNumber,
    DisplayName,
    EnumValue,
    IdText,
    PatchBody,
    Remark,
    RequestBodyModel,
    ResponseModel,
    ShortText,
    Timestamp,
)
from adapters.http.core.turns import TurnKind
from domain.commands.submission import CommandSubmissionResult
from domain.devices.channels import RELAY_CHANNEL, ChannelKind
from domain.devices.ports import MAX_GROUP_DEVICES
from domain.grants.service import GroupGrantService
from domain.groups.bulk_actions import GroupActionReport, GroupBulkActionService, GroupCommandInput, GroupDeviceOutcome
from domain.groups.service import DeviceGroupService, GroupWithMembers
from domain.kernel.ids import DeviceId, GrantId, GroupId, ProjectId
from domain.rules.model import Rule

DeviceIds = Annotated[list[IdText[DeviceId]], Field(max_length=MAX_GROUP_DEVICES)]


class DeviceGroupsQueryParameters(SearchPageQueryParameters):
    project_id: IdText[ProjectId] | None = None


class GroupCreateRequest(RequestBodyModel):
    name: DisplayName
    project_id: IdText[ProjectId] | None = Field(default=None, description="Omitted: the account's default project.")
    description: DescriptionText | None = None
    device_ids: DeviceIds | None = Field(default=None, description="Devices of the same project.")


class GroupUpdateRequest(PatchBody):
    """Omitted fields keep their value; `null` clears the description."""

    nullable = frozenset({"description"})

    name: DisplayName | None = None
    description: DescriptionText | None = None


class GroupMembersRequest(RequestBodyModel):
    add: DeviceIds | None = Field(default=None, description="Devices of the group's project.")
    remove: DeviceIds | None = None


class GroupMembersResponse(ResponseModel):
    """Devices that were members already, or no members, do not count."""

    added: int
    removed: int
    device_count: int


class GroupResponse(ResponseModel):
    group_id: str
    project_id: str
    name: str
    description: str | None
    device_count: int = Field(description="Members that the caller may see.")
    created_at: Timestamp

    @classmethod
    def from_domain(cls, view: GroupWithMembers) -> Self:
        return cls.of(view.group, view, device_count=len(view.devices))


class GroupMemberResponse(ResponseModel):
    device_id: str
    name: str
    external_id: str | None


class GroupDetailsResponse(GroupResponse):
    devices: list[GroupMemberResponse]


class GroupChangedResponse(GroupDetailsResponse):
    ok: bool = True


class GroupCommandRequest(RequestBodyModel):
    """As for one device, without waiting."""

    cmd: str = Field(min_length=1, max_length=64, examples=["ON"])
    channel: ChannelNumber = RELAY_CHANNEL
    channel_kind: EnumValue[ChannelKind] | None = Field(
        default=None, description="Instead of `channel`: all channels of this kind, such as all lights that can be dimmed."
    )
    channel_name: ShortText | None = Field(
        default=None, examples=["Light"], description="Instead of `channel`: all channels of this name, whatever its case."
    )
    params: Any = Field(default=None, description="Parameters; must match the command's schema.")
    ttl_seconds: int | None = Field(
        default=None, ge=1, le=86_400, description="How long the command may wait for the device. Default: 60."
    )
    reason: Remark | None = Field(default=None, description="Why: shown to who approves the command, and kept in the log.")

    def to_command(self) -> GroupCommandInput:
        ttl_ms = None if self.ttl_seconds is None else self.ttl_seconds * 1000
        return GroupCommandInput(self.cmd, self.params, ttl_ms, self.reason, self.channel, self.channel_kind, self.channel_name)


class MemberOutcomeKind(StrEnum):
    QUEUED = "QUEUED"
    PENDING = "PENDING"
    DONE = "DONE"
    REFUSED = "REFUSED"


class MemberOutcomeResponse(ResponseModel):
    device_id: str
    name: str
    outcome: MemberOutcomeKind
    error: str | None = Field(description="The code of the error of a REFUSED one.")
    message: str | None

    @classmethod
    def from_domain(
        cls, outcome: GroupDeviceOutcome[Any], kind: MemberOutcomeKind = MemberOutcomeKind.DONE, **given: object
    ) -> Self:
        error = outcome.error
        return cls.of(
            outcome.device,
            outcome=kind if error is None else MemberOutcomeKind.REFUSED,
            error=None if error is None else error.code,
            message=None if error is None else error.message,
            **given,
        )


class MemberCommandResponse(MemberOutcomeResponse):
    execution_id: str | None
    approval_id: str | None
    channel: int

    @classmethod
    def from_submission(cls, outcome: GroupDeviceOutcome[CommandSubmissionResult], *, is_preview: bool) -> MemberCommandResponse:
        result = outcome.result or CommandSubmissionResult()
        waits = result.approval is not None
        kind = MemberOutcomeKind.PENDING if waits else MemberOutcomeKind.QUEUED
        execution_id = None if is_preview or result.execution is None else result.execution.execution_id
        approval_id = None if is_preview or result.approval is None else result.approval.approval_id
        return cls.from_domain(outcome, kind, execution_id=execution_id, approval_id=approval_id, channel=outcome.channel)


class MemberRuleResponse(MemberOutcomeResponse):
    rule_id: str | None


class GroupCommandResponse(ResponseModel):
    """`devices` has one entry per member that the caller may see, oldest first; with `channelKind` or `channelName`, one per
    channel."""

    queued: int
    waiting: int = Field(description="Commands that wait for approval.")
    refused: int
    devices: list[MemberCommandResponse]

    @classmethod
    def from_domain(cls, report: GroupActionReport[CommandSubmissionResult], *, is_preview: bool = False) -> GroupCommandResponse:
        devices = [MemberCommandResponse.from_submission(each, is_preview=is_preview) for each in report.outcomes]
        counts = {kind: sum(each.outcome is kind for each in devices) for kind in MemberOutcomeKind}
        return cls(
            queued=counts[MemberOutcomeKind.QUEUED],
            waiting=counts[MemberOutcomeKind.PENDING],
            refused=counts[MemberOutcomeKind.REFUSED],
            devices=devices,
        )


class GroupChangeResponse(ResponseModel):
    """`devices` has one entry per member, oldest first."""

    done: int
    refused: int
    devices: list[MemberOutcomeResponse]

    @classmethod
    def from_domain(cls, report: GroupActionReport[Any]) -> GroupChangeResponse:
        devices = [MemberOutcomeResponse.from_domain(each) for each in report.outcomes]
        refused = sum(each.error is not None for each in report.outcomes)
        return cls(done=len(devices) - refused, refused=refused, devices=devices)


class GroupRuleResponse(ResponseModel):
    """`devices` has one entry per member, oldest first."""

    done: int
    refused: int
    devices: list[MemberRuleResponse]

    @classmethod
    def from_domain(cls, report: GroupActionReport[Rule]) -> GroupRuleResponse:
        refused = sum(each.error is not None for each in report.outcomes)
        devices = [
            MemberRuleResponse.from_domain(each, rule_id=None if each.result is None else each.result.rule_id)
            for each in report.outcomes
        ]
        return cls(done=len(devices) - refused, refused=refused, devices=devices)


WRITE_ERRORS = {403: "ROLE_REQUIRED"}
BULK_ERRORS = {403: "ROLE_REQUIRED GRANT_MISSING"}


def groups_blueprint(groups: DeviceGroupService, actions: GroupBulkActionService, grants: GroupGrantService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("groups", "Groups")
    _add_read_routes(bp, groups)
    _add_write_routes(bp, groups)
    _add_command_routes(bp, actions)
    _add_automation_routes(bp, actions)
    _add_grant_routes(bp, grants)
    return bp


def _add_read_routes(bp: ApiBlueprint, groups: DeviceGroupService) -> None:
    @bp.operation("GET /groups", AllowedCallers.KEY, "List groups")
    async def list_groups(query: DeviceGroupsQueryParameters) -> HttpHandlerResult[list[GroupResponse]]:
        """Oldest first. An API key sees the groups of the devices that its grants cover."""
        found = await groups.list(current_caller(), query.project_id)
        names = ("group.name", "group.group_id")
        return list_response(
            found, query, GroupResponse.from_domain, lambda view: (view.group.created_ms, view.group.group_id), names
        )

    @bp.operation("GET /groups/<group_id>", AllowedCallers.KEY, "Get a group")
    async def get_group(group_id: GroupId) -> GroupDetailsResponse:
        """With its members, oldest first."""
        return GroupDetailsResponse.from_domain(await groups.get(current_caller(), group_id))


def _add_write_routes(bp: ApiBlueprint, groups: DeviceGroupService) -> None:
    @bp.operation(
        "POST /groups",
        AllowedCallers.SESSION,
        "Create a group",
        status=201,
        errors={**WRITE_ERRORS, 404: "NOT_FOUND", 409: "GROUP_EXISTS GROUP_LIMIT GROUP_FULL"},
        idempotent=True,
    )
    async def create_group(body: GroupCreateRequest) -> GroupDetailsResponse:
        """A group belongs to one project; a device can be a member of many groups. Requires the role Admin or Owner."""
        made = await groups.create(
            current_session(),
            body.name,
            project_id=body.project_id,
            description=body.description,
            device_ids=body.device_ids or (),
        )
        return GroupDetailsResponse.from_domain(made)

    @bp.operation(
        "PATCH /groups/<group_id>", AllowedCallers.SESSION, "Change a group", errors={**WRITE_ERRORS, 409: "GROUP_EXISTS"}
    )
    async def update_group(group_id: GroupId, body: GroupUpdateRequest) -> GroupChangedResponse:
        """Its name or description. Requires the role Admin or Owner."""
        await groups.update(current_session(), group_id, body.to_changes())
        return GroupChangedResponse.from_domain(await groups.get(current_session(), group_id))

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
    async def update_group_members(group_id: GroupId, body: GroupMembersRequest) -> GroupMembersResponse:
        """Grants on the group cover a new member, and no longer a removed one, from the next call on. Requires the role Admin or
        Owner."""
        change = await groups.change_members(current_session(), group_id, body.add or (), body.remove or ())
        return GroupMembersResponse.of(change, device_count=change.total)


def _add_command_routes(bp: ApiBlueprint, actions: GroupBulkActionService) -> None:
    @bp.operation(
        "POST /groups/<group_id>/command",
        AllowedCallers.KEY,
        "Send a command to a group",
        affects="Commands",
        errors=BULK_ERRORS,
        idempotent=True,
        turn=TurnKind.COMMANDS,
    )
    async def send_group_command(group_id: GroupId, body: GroupCommandRequest) -> GroupCommandResponse:
        """Each member is decided on its own, as by a single command: its definition, the caller's grants and limits, approval. An
        API key sends to the members that its grants cover."""
        report = await actions.send(current_caller(), group_id, body.to_command())
        return GroupCommandResponse.from_domain(report)

    @bp.operation(
        "POST /groups/<group_id>/command/preview",
        AllowedCallers.KEY,
        "Preview a command to a group",
        affects="Commands",
        errors=BULK_ERRORS,
        turn=TurnKind.COMMANDS,
    )
    async def preview_group_command(group_id: GroupId, body: GroupCommandRequest) -> GroupCommandResponse:
        """Who is meant, and what would come of it now. Sends nothing, and uses up no rate limit."""
        report = await actions.preview(current_caller(), group_id, body.to_command())
        return GroupCommandResponse.from_domain(report, is_preview=True)


def _add_automation_routes(bp: ApiBlueprint, actions: GroupBulkActionService) -> None:
    @bp.operation(
        "POST /groups/<group_id>/schedules",
        AllowedCallers.SESSION,
        "Create or replace a schedule of all members",
        status=201,
        turn=TurnKind.BULK,
        affects="Schedules",
        errors=BULK_ERRORS,
        idempotent=True,
    )
    async def create_group_schedule(group_id: GroupId, body: ScheduleCreateRequest) -> GroupChangeResponse:
        """A copy for each member; a device that joins later gets none."""
        report = await actions.put_schedule(current_session(), group_id, body.slot, body.to_input())
        return GroupChangeResponse.from_domain(report)

    @bp.operation(
        "DELETE /groups/<group_id>/schedules/<slot>",
        AllowedCallers.SESSION,
        "Cancel a schedule of all members",
        turn=TurnKind.BULK,
        affects="Schedules",
        errors=BULK_ERRORS,
    )
    async def cancel_group_schedule(group_id: GroupId, slot: int) -> GroupChangeResponse:
        """Cancels whatever the slot of each member holds."""
        report: Any = await actions.cancel_schedule(current_session(), group_id, slot)
        return GroupChangeResponse.from_domain(report)

    @bp.operation(
        "POST /groups/<group_id>/rules",
        AllowedCallers.SESSION,
        "Create a rule on all members",
        status=201,
        turn=TurnKind.BULK,
        affects="Rules",
        errors=BULK_ERRORS,
        idempotent=True,
    )
    async def create_group_rule(group_id: GroupId, body: RuleCreateRequest) -> GroupRuleResponse:
        """A copy for each member that has no rule of this name; the others are REFUSED with `RULE_EXISTS`."""
        report = await actions.create_rule(current_session(), group_id, body.to_fields())
        return GroupRuleResponse.from_domain(report)


def _add_grant_routes(bp: ApiBlueprint, grants: GroupGrantService[Any]) -> None:
    @bp.operation(
        "GET /groups/<group_id>/grants", AllowedCallers.SESSION, "List a group's grants", affects="Grants", errors=WRITE_ERRORS
    )
    async def list_group_grants(group_id: GroupId, query: PageQueryParameters) -> HttpHandlerResult[list[GrantResponse]]:
        """Oldest first. Requires the role Admin or Owner."""
        found = await grants.list(current_session(), group_id)
        return list_response(found, query, GrantResponse.from_domain, lambda named: (named[0].created_ms, named[0].grant_id))

    @bp.operation(
        "POST /groups/<group_id>/grants",
        AllowedCallers.SESSION,
        "Create a grant on a group",
        affects="Grants",
        status=201,
        errors={**WRITE_ERRORS, 409: "GRANT_LIMIT REQUEST_PENDING"},
        authority=AuthorityMade("grant_created", "DELETE /groups/{groupId}/grants/{grantId}"),
        idempotent=True,
    )
    async def create_group_grant(group_id: GroupId, body: GroupGrantCreateRequest) -> GrantCreatedResponse:
        """Covers every device while it is a member. A rate limit is for all members together. Requires the role Admin or
        Owner."""
        granted = await grants.create(current_session(), group_id, body.to_input())
        return GrantCreatedResponse.from_domain(await grants.get(current_session(), group_id, granted.grant.grant_id))

    @bp.operation(
        "GET /groups/<group_id>/grants/<grant_id>",
        AllowedCallers.SESSION,
        "Get a grant on a group",
        affects="Grants",
        errors=WRITE_ERRORS,
    )
    async def get_group_grant(group_id: GroupId, grant_id: GrantId) -> GrantResponse:
        """Requires the role Admin or Owner."""
        return GrantResponse.from_domain(await grants.get(current_session(), group_id, grant_id))

    @bp.operation(
        "PATCH /groups/<group_id>/grants/<grant_id>",
        AllowedCallers.SESSION,
        "Change a grant on a group",
        affects="Grants",
        errors={**WRITE_ERRORS, 409: "REQUEST_PENDING"},
        authority=AuthorityMade("grant_updated", "DELETE /groups/{groupId}/grants/{grantId}", when="the grant becomes wider"),
    )
    async def update_group_grant(group_id: GroupId, grant_id: GrantId, body: GrantUpdateRequest) -> GrantChangedResponse:
        """Takes effect with the next call. Requires the role Admin or Owner."""
        await grants.update(current_session(), group_id, grant_id, body.to_changes())
        return GrantChangedResponse.from_domain(await grants.get(current_session(), group_id, grant_id))

    @bp.operation(
        "DELETE /groups/<group_id>/grants/<grant_id>",
        AllowedCallers.SESSION,
        "Delete a grant on a group",
        affects="Grants",
        errors=WRITE_ERRORS,
    )
    async def delete_group_grant(group_id: GroupId, grant_id: GrantId) -> None:
        """Takes effect with the next call. Requires the role Admin or Owner."""
        await grants.delete(current_session(), group_id, grant_id)
