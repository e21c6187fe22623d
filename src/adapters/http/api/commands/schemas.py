"""Request and response models of commands, their definitions and executions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from adapters.http.core.schemas import (
    VISIBLE_LINE_SCHEMA,
    EnumValue,
    OkResponse,
    OneLine,
    PatchBody,
    QueryParametersModel,
    Remark,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from domain.approvals.model import ApprovalStatus
from domain.commands.definitions import CommandDefinitionInput
from domain.commands.model import CommandKind, CommandWidget, ExecutionStatus, TriggeredBy

MAX_WAIT_S = 30
DEPRECATED: JsonDict = {"deprecated": True}

Label = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra=VISIBLE_LINE_SCHEMA),
]
DescriptionText = Annotated[str, StringConstraints(max_length=500)]
CommandName = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{1,64}$")]


class CommandSendRequest(RequestBodyModel):
    cmd: str = Field(min_length=1, max_length=64, examples=["ON"])
    params: Any = Field(default=None, description="Parameters; must match the command's schema.")
    ttl_seconds: int | None = Field(
        default=None, ge=1, le=86_400, description="How long the command may wait for the device. Default: 60."
    )
    wait_seconds: float | None = Field(
        default=None,
        ge=0,
        le=MAX_WAIT_S,
        description="Wait up to this long for the device's result before responding; with approval, first for the decision.",
    )
    reason: Remark | None = Field(default=None, description="Why: shown to who approves the command, and kept in the log.")
    queued_at: Any = Field(default=None, description="Accepted from older clients and ignored.", json_schema_extra=DEPRECATED)
    target: None = Field(default=None, description="Accepted from older clients; must be null.", json_schema_extra=DEPRECATED)


class CommandQueuedResponse(OkResponse):
    """The command is queued or sent. `status` is its present status; a published command is not yet an executed one."""

    execution_id: str
    status: ExecutionStatus


class CommandResultResponse(CommandQueuedResponse):
    """The response with `waitSeconds`: the device's result, or null if it has not answered."""

    result: Any


class ApprovalPendingResponse(OkResponse):
    """The command waits for the approval of an Owner or Admin. After `waitSeconds`, `status` tells if it has been denied."""

    approval_required: bool = True
    approval_id: str
    status: ApprovalStatus = Field(description="DENIED or EXPIRED: the command was not and will not be sent.")
    note: str | None = Field(description="What the decider says about it.")


class CommandDefinitionCreateRequest(RequestBodyModel):
    name: CommandName = Field(examples=["SET_LEVEL"])
    label: Label
    description: DescriptionText | None = None
    kind: EnumValue[CommandKind] = CommandKind.ACTION
    params_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema 2020-12; only local `$ref`.")
    shape: EnumValue[CommandWidget] = CommandWidget.BUTTON
    requires_approval: bool = False

    def to_input(self) -> CommandDefinitionInput:
        return self.to_domain(CommandDefinitionInput)


class CommandDefinitionUpdateRequest(PatchBody):
    """Omitted fields keep their value."""

    nullable = frozenset({"description", "params_schema"})

    name: CommandName | None = None
    label: Label | None = None
    description: DescriptionText | None = None
    kind: EnumValue[CommandKind] | None = None
    params_schema: dict[str, Any] | None = None
    shape: EnumValue[CommandWidget] | None = None
    requires_approval: bool | None = None


class CommandDefinitionCreatedResponse(ResponseModel):
    command_id: str


class CommandDefinitionResponse(ResponseModel):
    command_id: str | None = Field(description="null for a built-in command.")
    name: str
    label: str
    description: str | None
    kind: CommandKind
    params_schema: dict[str, Any] | None
    shape: CommandWidget
    requires_approval: bool


class CommandExecutionsQueryParameters(QueryParametersModel):
    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, max_length=64)


class ExecutionResponse(ResponseModel):
    execution_id: str
    cmd: str
    params: Any
    status: ExecutionStatus
    source: TriggeredBy
    result: Any = Field(description="The device's result, `{code, relay, data}`; null until it answers.")
    created_at: Timestamp
    expires_at: Timestamp
    finished_at: Timestamp | None
    approval_id: str | None = Field(description="The approval that the command waited for.")


class ExecutionPageResponse(ResponseModel):
    data: list[ExecutionResponse]
    has_more: bool
    cursor: str = Field(description="Pass it to get the next page; empty on the last page.")
