"""Commands of a device: send them, list their executions, define them. API keys can do all but define."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from adapters.http.core.callers import AllowedCallers, current_caller, current_session
from adapters.http.core.errors import rate_limit_headers
from adapters.http.core.operation import ApiBlueprint, ApiOperationOptions, HttpHandlerResult
from adapters.http.core.paging import (
    CREATED,
    PageLimit,
    PageQueryParameters,
    TimedPageQueryParameters,
    by_creation,
    cursor_at,
    list_response,
    page_of,
)
from adapters.http.core.schemas import (
    ChannelNumber,
    ChannelNumbers,
    EnumValue,
    OkResponse,
    PatchBody,
    Remark,
    RequestBodyModel,
    ResponseModel,
    ShortText,
    Timestamp,
)
from adapters.http.core.turns import TurnKind
from domain.approvals.model import ApprovalStatus
from domain.commands.cancellation import CommandCancellationService
from domain.commands.definitions import CommandDefinitionInput, CommandDefinitionService
from domain.commands.model import (
    CommandDefinition,
    CommandKind,
    CommandWidget,
    ExecutionStatus,
    TriggeredBy,
    place_among_built_in,
)
from domain.commands.queries import DeviceQueries, SubmittedCommandWaiter
from domain.commands.submission import CommandSubmissionResult, CommandSubmissionService
from domain.devices.channels import RELAY_CHANNEL
from domain.grants.model import RATE_WINDOW_S
from domain.kernel.ids import CommandId, DeviceId, ExecutionId

MAX_WAIT_S = 30
DEPRECATED: JsonDict = {"deprecated": True}

DescriptionText = Annotated[str, StringConstraints(max_length=500)]
CommandName = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{1,64}$")]


class CommandSendRequest(RequestBodyModel):
    cmd: str = Field(min_length=1, max_length=64, examples=["ON"])
    channel: ChannelNumber = RELAY_CHANNEL
    params: Any = Field(
        default=None, description="Any JSON that matches the command's schema; its texts must not contain NUL (`\\u0000`)."
    )
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
    status: ApprovalStatus = Field(description="DENIED, WITHDRAWN or EXPIRED: the command was not and will not be sent.")
    note: str | None = Field(description="What the decider says about it.")


class CommandDefinitionCreateRequest(RequestBodyModel):
    name: CommandName = Field(examples=["SET_LEVEL"])
    label: ShortText
    description: DescriptionText | None = None
    kind: EnumValue[CommandKind] = CommandKind.ACTION
    params_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema 2020-12; only local `$ref`.")
    shape: EnumValue[CommandWidget] = CommandWidget.BUTTON
    requires_approval: bool = False
    channels: ChannelNumbers = Field(default_factory=list)

    def to_input(self) -> CommandDefinitionInput:
        return self.to_domain(CommandDefinitionInput, channels=tuple(sorted(set(self.channels))))


class CommandDefinitionUpdateRequest(PatchBody):
    """Omitted fields keep their value."""

    nullable = frozenset({"description", "params_schema"})

    name: CommandName | None = None
    label: ShortText | None = None
    description: DescriptionText | None = None
    kind: EnumValue[CommandKind] | None = None
    params_schema: dict[str, Any] | None = None
    shape: EnumValue[CommandWidget] | None = None
    requires_approval: bool | None = None
    channels: ChannelNumbers | None = None

    def to_changes(self) -> dict[str, Any]:
        given = super().to_changes()
        if "channels" in given:
            given["channels"] = tuple(sorted(set(given["channels"])))
        return given


class CommandDefinitionResponse(ResponseModel):
    command_id: str | None = Field(description="null for a built-in command.")
    name: str
    label: str
    description: str | None
    kind: CommandKind
    params_schema: dict[str, Any] | None
    shape: CommandWidget
    requires_approval: bool
    channels: list[int] = Field(description="The channels that it is for; empty: all of the device.")


class CommandDefinitionChangedResponse(CommandDefinitionResponse):
    ok: bool = True


class CommandExecutionsQueryParameters(TimedPageQueryParameters):
    limit: PageLimit = 50


class ExecutionResponse(ResponseModel):
    execution_id: str
    cmd: str
    channel: int
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
    cursor: str = Field(description="Of the next page. That of the last page leads to an empty one.")


class CommandsCancelledResponse(OkResponse):
    """How many commands were called off."""

    cancelled: int = Field(description="0 if nothing waited to be sent any more.")


READ_ERRORS = {403: "GRANT_MISSING GRANT_EXPIRED"}
CANCEL_ERRORS = {
    403: "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED CHANNEL_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED "
    "OUTSIDE_GRANT_WINDOW",
    409: "ALREADY_SENT",
}
DEFINITION_ERRORS = {403: "ROLE_REQUIRED", 409: "COMMAND_EXISTS TOO_MANY_COMMANDS REQUEST_PENDING"}


SendResponse = HttpHandlerResult[CommandResultResponse | CommandQueuedResponse | ApprovalPendingResponse]
SEND_OPTIONS: ApiOperationOptions = {
    "returns": {200: CommandResultResponse | CommandQueuedResponse, 202: ApprovalPendingResponse},
    "errors": {
        400: "UNKNOWN_CHANNEL UNKNOWN_COMMAND INVALID_PARAMS",
        403: "DEVICE_DISABLED ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED CHANNEL_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED "
        "OUTSIDE_GRANT_WINDOW",
        409: "DEVICE_PENDING TOO_MANY_QUEUED",
        429: "RATE_LIMITED TOO_MANY_REQUESTS_WAIT",
    },
    "idempotent": True,
}


def commands_blueprint(
    commands: CommandSubmissionService,
    waiter: SubmittedCommandWaiter,
    definitions: CommandDefinitionService,
    control: DeviceQueries,
    cancellation: CommandCancellationService,
) -> ApiBlueprint:
    bp = ApiBlueprint("commands", "Commands")
    _add_send_routes(bp, commands, waiter)
    _add_definition_routes(bp, definitions)
    _add_execution_routes(bp, control)
    _add_cancel_routes(bp, cancellation)
    return bp


def _add_send_routes(bp: ApiBlueprint, commands: CommandSubmissionService, waiter: SubmittedCommandWaiter) -> None:
    @bp.operation("POST /devices/<device_id>/command", AllowedCallers.KEY, "Send a command", **SEND_OPTIONS)
    async def send_command(device_id: DeviceId, body: CommandSendRequest) -> SendResponse:
        """Responds with 202 if the command needs approval first. With `waitSeconds`, the response waits for the device's
        `result`, and for the decision before that."""
        ttl_ms = body.ttl_seconds * 1000 if body.ttl_seconds is not None else None
        submitted = await commands.submit(
            current_caller(), device_id, body.cmd, body.params, ttl_ms=ttl_ms, reason=body.reason, channel=body.channel
        )
        if body.wait_seconds:
            submitted = await waiter.wait(submitted, body.wait_seconds)
        return _submission_response(submitted, with_result=bool(body.wait_seconds))

    @bp.operation("POST /devices/<device_id>/command/on", AllowedCallers.KEY, "Switch on", **SEND_OPTIONS)
    async def switch_on(device_id: DeviceId) -> SendResponse:
        """Sends the command ON without parameters."""
        return _submission_response(await commands.submit(current_caller(), device_id, "ON"))

    @bp.operation("POST /devices/<device_id>/command/off", AllowedCallers.KEY, "Switch off", **SEND_OPTIONS)
    async def switch_off(device_id: DeviceId) -> SendResponse:
        """Sends the command OFF without parameters."""
        return _submission_response(await commands.submit(current_caller(), device_id, "OFF"))


def _add_definition_routes(bp: ApiBlueprint, definitions: CommandDefinitionService) -> None:
    @bp.operation("GET /devices/<device_id>/commands", AllowedCallers.KEY, "List a device's commands", errors=READ_ERRORS)
    async def list_commands(
        device_id: DeviceId, query: PageQueryParameters
    ) -> HttpHandlerResult[list[CommandDefinitionResponse]]:
        """Built-in commands first, those that the kinds of the device's channels have. One entry per name: the device's
        definition, or its type's, or the built-in one; several, where `channels` differ."""
        found = await definitions.list(current_caller(), device_id)
        return list_response(found, query, CommandDefinitionResponse.of, _place_in_list)

    @bp.operation(
        "POST /devices/<device_id>/commands",
        AllowedCallers.SESSION,
        "Create a command definition",
        turn=TurnKind.BULK,
        status=201,
        errors=DEFINITION_ERRORS,
        idempotent=True,
    )
    async def create_command(device_id: DeviceId, body: CommandDefinitionCreateRequest) -> CommandDefinitionResponse:
        """A definition with the name of a built-in command, or of a command of the device type, overrides it for this device."""
        return CommandDefinitionResponse.of(await definitions.create(current_session(), device_id, body.to_input()))

    @bp.operation("GET /devices/<device_id>/commands/<command_id>", AllowedCallers.SESSION, "Get a command definition")
    async def get_command(device_id: DeviceId, command_id: CommandId) -> CommandDefinitionResponse:
        """One that the device itself has; those of its type are at `GET /device-types/{deviceTypeId}`."""
        return CommandDefinitionResponse.of(await definitions.get(current_session(), device_id, command_id))

    @bp.operation(
        "PATCH /devices/<device_id>/commands/<command_id>",
        AllowedCallers.SESSION,
        "Change a command definition",
        turn=TurnKind.BULK,
        errors=DEFINITION_ERRORS,
    )
    async def update_command(
        device_id: DeviceId, command_id: CommandId, body: CommandDefinitionUpdateRequest
    ) -> CommandDefinitionChangedResponse:
        """Omitted fields keep their value. Only an Owner or Admin can change a command that needs approval."""
        changed = await definitions.update(current_session(), device_id, command_id, body.to_changes())
        return CommandDefinitionChangedResponse.of(changed)

    @bp.operation(
        "DELETE /devices/<device_id>/commands/<command_id>",
        AllowedCallers.SESSION,
        "Delete a command definition",
        errors=DEFINITION_ERRORS,
    )
    async def delete_command(device_id: DeviceId, command_id: CommandId) -> None:
        """The definition that it overrode applies again."""
        await definitions.delete(current_session(), device_id, command_id)


def _add_execution_routes(bp: ApiBlueprint, control: DeviceQueries) -> None:
    @bp.operation("GET /devices/<device_id>/executions", AllowedCallers.KEY, "List command executions", errors=READ_ERRORS)
    async def list_executions(
        device_id: DeviceId, query: CommandExecutionsQueryParameters
    ) -> HttpHandlerResult[ExecutionPageResponse]:
        """Newest first."""
        before = query.position(*CREATED)
        found = await control.list_executions(
            current_caller(), device_id, limit=query.limit + 1, before=before, created=query.span
        )
        page = found[: query.limit]
        end = by_creation(page[-1]) if page else before or (0, 0)
        has_more = len(found) > len(page)
        body = ExecutionPageResponse(data=[ExecutionResponse.of(one) for one in page], has_more=has_more, cursor=cursor_at(end))
        return page_of(body, end if has_more else None)

    @bp.operation(
        "GET /devices/<device_id>/executions/<execution_id>", AllowedCallers.KEY, "Get a command execution", errors=READ_ERRORS
    )
    async def get_execution(device_id: DeviceId, execution_id: ExecutionId) -> ExecutionResponse:
        """The status of the command, and the device's result."""
        return ExecutionResponse.of(await control.get_execution(current_caller(), device_id, execution_id))


def _add_cancel_routes(bp: ApiBlueprint, cancellation: CommandCancellationService) -> None:
    @bp.operation(
        "POST /devices/<device_id>/executions/<execution_id>/cancel",
        AllowedCallers.KEY,
        "Call off a command",
        errors=CANCEL_ERRORS,
    )
    async def cancel_execution(device_id: DeviceId, execution_id: ExecutionId) -> CommandsCancelledResponse:
        """A command that waits for its device ends as CANCELLED. What was sent cannot be called off. A key calls off its own
        commands."""
        return CommandsCancelledResponse(cancelled=await cancellation.cancel(current_caller(), device_id, execution_id))

    @bp.operation(
        "POST /devices/<device_id>/executions/cancel",
        AllowedCallers.SESSION,
        "Call off all waiting commands of a device",
        errors={403: CANCEL_ERRORS[403]},
    )
    async def cancel_executions(device_id: DeviceId) -> CommandsCancelledResponse:
        """All that wait for the device end as CANCELLED, or none if the caller may not call off one of them."""
        return CommandsCancelledResponse(cancelled=await cancellation.cancel_all(current_session(), device_id))


def _place_in_list(definition: CommandDefinition) -> tuple[int, str, int]:
    return place_among_built_in(definition.name), definition.name, min(definition.channels, default=0)


def _submission_response(submitted: CommandSubmissionResult, *, with_result: bool = False) -> SendResponse:
    quota = submitted.quota
    headers = {} if quota is None else rate_limit_headers(quota.limit, RATE_WINDOW_S, quota.remaining, quota.reset_s)
    if submitted.approval is not None:
        return HttpHandlerResult(ApprovalPendingResponse.of(submitted.approval), 202, headers)
    if submitted.execution is None:
        raise AssertionError("a submitted command is an execution or an approval")
    kind = CommandResultResponse if with_result else CommandQueuedResponse
    return HttpHandlerResult(kind.of(submitted.execution), 200, headers)
