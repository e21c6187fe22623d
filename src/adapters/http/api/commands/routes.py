"""Command routes: send commands, list executions. API keys can do both."""

from __future__ import annotations

from adapters.http.api.commands import schemas as schema
from adapters.http.api.commands.definition_routes import READ_ERRORS, add_definition_routes
from adapters.http.core.caller_authentication import AllowedCallers, current_caller
from adapters.http.core.error_responses import rate_limit_headers
from adapters.http.core.operation import ApiBlueprint, ApiOperationOptions
from adapters.http.core.operation_handling import HttpHandlerResult
from domain.commands.definitions import CommandDefinitionService
from domain.commands.queries import DeviceAndExecutionQueryService, SubmittedCommandWaiter
from domain.commands.submission import CommandSubmissionResult, CommandSubmissionService
from domain.grants.model import RATE_WINDOW_S
from domain.kernel.cursors import EXECUTIONS, decode_cursor, encode_cursor
from domain.kernel.ids import DeviceId, ExecutionId

SendResponse = HttpHandlerResult[schema.CommandResultResponse | schema.CommandQueuedResponse | schema.ApprovalPendingResponse]
SEND_OPTIONS: ApiOperationOptions = {
    "returns": {200: schema.CommandResultResponse | schema.CommandQueuedResponse, 202: schema.ApprovalPendingResponse},
    "errors": {
        400: "UNKNOWN_COMMAND INVALID_PARAMS",
        403: "DEVICE_DISABLED ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED "
        "OUTSIDE_GRANT_WINDOW",
        409: "TOO_MANY_QUEUED",
        429: "RATE_LIMITED",
    },
    "idempotent": True,
    "limited": True,
}


def commands_blueprint(
    commands: CommandSubmissionService,
    waiter: SubmittedCommandWaiter,
    definitions: CommandDefinitionService,
    control: DeviceAndExecutionQueryService,
) -> ApiBlueprint:
    bp = ApiBlueprint("commands", "Commands")
    _add_send_routes(bp, commands, waiter)
    add_definition_routes(bp, definitions)
    _add_execution_routes(bp, control)
    return bp


def _add_send_routes(bp: ApiBlueprint, commands: CommandSubmissionService, waiter: SubmittedCommandWaiter) -> None:
    @bp.operation("POST /devices/<device_id>/command", AllowedCallers.KEY, "Send a command", **SEND_OPTIONS)
    async def send_command(device_id: DeviceId, body: schema.CommandSendRequest) -> SendResponse:
        """Responds with 202 if the command needs approval first. With `waitSeconds`, the response waits for the device's
        `result`, and for the decision before that."""
        ttl_ms = body.ttl_seconds * 1000 if body.ttl_seconds is not None else None
        submitted = await commands.submit(current_caller(), device_id, body.cmd, body.params, ttl_ms=ttl_ms, reason=body.reason)
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


def _add_execution_routes(bp: ApiBlueprint, control: DeviceAndExecutionQueryService) -> None:
    @bp.operation("GET /devices/<device_id>/executions", AllowedCallers.KEY, "List command executions", errors=READ_ERRORS)
    async def list_executions(
        device_id: DeviceId, query: schema.CommandExecutionsQueryParameters
    ) -> schema.ExecutionPageResponse:
        """Newest first. Pass `cursor` to get the next page."""
        before_seq = None if query.cursor is None else decode_cursor(EXECUTIONS, query.cursor)[0]
        page = await control.list_executions(current_caller(), device_id, limit=query.limit, before_seq=before_seq)
        return schema.ExecutionPageResponse(
            data=[schema.ExecutionResponse.of(one) for one in page.executions],
            has_more=page.next_seq is not None,
            cursor="" if page.next_seq is None else encode_cursor(EXECUTIONS, page.next_seq),
        )

    @bp.operation(
        "GET /devices/<device_id>/executions/<execution_id>", AllowedCallers.KEY, "Get a command execution", errors=READ_ERRORS
    )
    async def get_execution(device_id: DeviceId, execution_id: ExecutionId) -> schema.ExecutionResponse:
        """The status of the command, and the device's result."""
        found = await control.get_execution(current_caller(), device_id, execution_id)
        return schema.ExecutionResponse.of(found)


def _submission_response(submitted: CommandSubmissionResult, *, with_result: bool = False) -> SendResponse:
    quota = submitted.quota
    headers = {} if quota is None else rate_limit_headers(quota.limit, RATE_WINDOW_S, quota.remaining, quota.reset_s)
    if submitted.approval is not None:
        return HttpHandlerResult(schema.ApprovalPendingResponse.of(submitted.approval), 202, headers)
    if submitted.execution is None:
        raise AssertionError("a submitted command is an execution or an approval")
    kind = schema.CommandResultResponse if with_result else schema.CommandQueuedResponse
    return HttpHandlerResult(kind.of(submitted.execution), 200, headers)
