"""Request and response models of groups."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field

from adapters.http.api.devices.schemas import DescriptionText
from adapters.http.core.paging import PageQueryParameters
from adapters.http.core.schemas import DisplayName, IdText, PatchBody, Remark, RequestBodyModel, ResponseModel, Timestamp
from domain.commands.submission import CommandSubmissionResult
from domain.devices.ports import MAX_GROUP_DEVICES
from domain.groups.bulk_actions import GroupActionReport, GroupCommandInput, GroupDeviceOutcome
from domain.groups.service import GroupWithMembers
from domain.kernel.ids import DeviceId, ProjectId
from domain.rules.model import Rule

DeviceIds = Annotated[list[IdText[DeviceId]], Field(max_length=MAX_GROUP_DEVICES)]


class DeviceGroupsQueryParameters(PageQueryParameters):
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


class GroupCommandRequest(RequestBodyModel):
    """As for one device, without waiting."""

    cmd: str = Field(min_length=1, max_length=64, examples=["ON"])
    params: Any = Field(default=None, description="Parameters; must match the command's schema.")
    ttl_seconds: int | None = Field(
        default=None, ge=1, le=86_400, description="How long the command may wait for the device. Default: 60."
    )
    reason: Remark | None = Field(default=None, description="Why: shown to who approves the command, and kept in the log.")

    def to_command(self) -> GroupCommandInput:
        ttl_ms = None if self.ttl_seconds is None else self.ttl_seconds * 1000
        return GroupCommandInput(self.cmd, self.params, ttl_ms, self.reason)


class MemberOutcomeKind(StrEnum):
    QUEUED = "QUEUED"
    WAITS_FOR_APPROVAL = "WAITS_FOR_APPROVAL"
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

    @classmethod
    def from_submission(cls, outcome: GroupDeviceOutcome[CommandSubmissionResult], *, is_preview: bool) -> MemberCommandResponse:
        result = outcome.result or CommandSubmissionResult()
        waits = result.approval is not None
        kind = MemberOutcomeKind.WAITS_FOR_APPROVAL if waits else MemberOutcomeKind.QUEUED
        execution_id = None if is_preview or result.execution is None else result.execution.execution_id
        approval_id = None if is_preview or result.approval is None else result.approval.approval_id
        return cls.from_domain(outcome, kind, execution_id=execution_id, approval_id=approval_id)


class MemberRuleResponse(MemberOutcomeResponse):
    rule_id: str | None


class GroupCommandResponse(ResponseModel):
    """`devices` has one entry per member that the caller may see, oldest first."""

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
            waiting=counts[MemberOutcomeKind.WAITS_FOR_APPROVAL],
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
