"""Accept commands: check each one, then store it as a QUEUED execution, which is the outbox entry.

The order of the checks is part of the wire contract: definition, parameters, device state, permission, approval, queue length.
Callers, schedules, rules and approvals all pass the same checks. What decides about commands is loaded before: one command takes
one look-up (`get_context`), a batch takes two for any number of devices (`load_contexts`); every decision after that needs no
I/O. This service sends nothing: the dispatcher is woken after the commit.

When a request is repeated with its `Idempotency-Key`, its authority is decided before the state of the device: a command that is
gone, or a full list of rules, must not hide that the caller has lost a role or grant since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from domain.approvals.model import Approval
from domain.commands.approval_requests import create_approval, resolve_requester
from domain.commands.contexts import get_context, get_context_for_caller, load_contexts, permission_request
from domain.commands.dispatch_queue import DispatchEntry, DispatchQueue
from domain.commands.model import (
    DEFAULT_TTL_MS,
    MAX_TTL_MS,
    AutomationCommand,
    CommandContext,
    CommandDefinition,
    CommandKind,
    CommandRequest,
    Execution,
    ExecutionStatus,
    TriggeredBy,
    effective_definitions,
    find_definition,
    require_definition,
)
from domain.commands.ports import CommandsTx, ParamsValidator
from domain.devices.channels import RELAY_CHANNEL, on_channel
from domain.devices.model import Device, DeviceStatus
from domain.grants.authorizer import AccessPermit, Authorizer, AutomationGrantCheckInput
from domain.grants.checks import GrantCheckInput
from domain.grants.model import RemainingRateLimit
from domain.kernel.caller import ApiKeyCaller, Caller, Role, SessionCaller
from domain.kernel.checks import is_nested_deeper_than
from domain.kernel.clock import Clock, to_iso
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, Json, event_of
from domain.kernel.errors import Conflict, DomainError, FieldError, PermissionDenied, ValidationFailed
from domain.kernel.idempotency import IdempotentReplayRollbackError
from domain.kernel.ids import ApprovalId, DeviceId, ExecutionId, GrantId, IdAndSecretGenerator, IdPrefix, MembershipId
from domain.kernel.unit_of_work import UnitOfWork
from domain.team.service_sessions import check_operation

MAX_OPEN_EXECUTIONS = 100
"""Unfinished commands of one device: more than anyone queues on purpose, few enough to send at once."""
MAX_PARAMS_BYTES = 16 * 1024
"""A quarter of the largest message a device link carries."""
MAX_PARAMS_DEPTH = 32
COMMANDS = "commands"
"""What the operations of a service session that switch are named after."""


@dataclass(frozen=True, slots=True)
class CommandSubmissionResult:
    """Exactly one of the first two is set. `quota`: what is left of the grant's rate limit, where it has one."""

    execution: Execution | None = None
    approval: Approval | None = None
    quota: RemainingRateLimit | None = None


@service
class CommandSubmissionService:
    """Implements `ApprovedCommandSubmitterPort` and `DeviceCommandLister`."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    ids: IdAndSecretGenerator
    authorizer: Authorizer
    validator: ParamsValidator
    dispatch_queue: DispatchQueue
    wake_approvals: Callable[[], None]

    async def submit(
        self,
        caller: SessionCaller | ApiKeyCaller,
        device_id: DeviceId,
        cmd: str,
        params: Json = None,
        *,
        ttl_ms: int | None = None,
        reason: str | None = None,
        channel: int = RELAY_CHANNEL,
    ) -> CommandSubmissionResult:
        """`reason`: a line for who approves and for the log.

        Raises, in this order: NotFound; ValidationFailed `UNKNOWN_CHANNEL`, `UNKNOWN_COMMAND`, `INVALID_PARAMS`; Conflict
        `DEVICE_PENDING`, PermissionDenied `DEVICE_DISABLED`; what the authorizer raises; Conflict `TOO_MANY_QUEUED`."""
        ttl_ms = checked_ttl_ms(ttl_ms)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER) as tx:  # the authorizer asks for the role or grant that the command needs
            context = await get_context_for_caller(tx, caller, device_id)
            return await self.submit_in_transaction(
                tx, caller, context, CommandRequest(context.device, cmd, params, ttl_ms, reason, channel), now_ms
            )

    async def submit_in_transaction(
        self, tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, context: CommandContext, request: CommandRequest, now_ms: int
    ) -> CommandSubmissionResult:
        """`submit` as a part of the caller's transaction. When it raises, it has written nothing."""
        if caller.is_replay:
            await self._end_replay(tx, caller, context, [(request.cmd, request.channel)], now_ms)
        definition = self._require_definition(context, request)
        _check_accepts_commands(context.device)
        has_room = definition.requires_approval or not _is_queue_full(context)
        permit = await self.authorizer.authorize(
            tx,
            caller,
            context.device,
            permission_request(context.device, definition, request.channel),
            now_ms,
            spend=has_room,
            known=context.grants,
        )
        if definition.requires_approval and permit.subject_to_approval:
            approval = await self._request_approval(tx, caller, request, permit.grant_id, now_ms)
            return CommandSubmissionResult(approval=approval, quota=permit.quota)
        _reserve_slot(context)
        execution = self._new_execution(caller, request, TriggeredBy.of(caller), permit.grant_id, now_ms)
        await self._queue(tx, [(caller, DispatchEntry(context.device, execution))], now_ms, request.reason)
        return CommandSubmissionResult(execution=execution, quota=permit.quota)

    async def effective_definitions(self, tx: CommandsTx, device: Device) -> Sequence[CommandDefinition]:
        """The device's commands; of one name several, if its channels have different ones."""
        of_type = [] if device.device_type_id is None else await tx.definitions.list_by_device_type(device.device_type_id)
        return effective_definitions(of_type, await tx.definitions.list_by_device(device.device_id), device)

    async def check_unattended(
        self, tx: CommandsTx, caller: SessionCaller, device: Device, cmd: str, params: Json, channel: int, now_ms: int
    ) -> CommandDefinition:
        """For a schedule or rule that is being saved: what can switch needs the operation that switches. Raises ValidationFailed,
        also `COMMAND_NEEDS_APPROVAL`, and PermissionDenied."""
        check_operation(caller, COMMANDS, is_read=False)
        context = (await load_contexts(tx, [device]))[device.device_id]
        definition = self._require_definition(context, CommandRequest(device, cmd, params, DEFAULT_TTL_MS, channel=channel))
        _check_needs_no_approval(definition)
        request = permission_request(device, definition, channel, runs_later=True)
        await self.authorizer.authorize(tx, caller, device, request, now_ms)
        return definition

    async def authorize_replay(
        self, tx: CommandsTx, caller: SessionCaller, device: Device, cmds: Sequence[tuple[str, int]], now_ms: int
    ) -> None:
        """For a schedule or rule with these commands, each with its channel. Ends the transaction of a replay; nothing for a
        first request.

        Raises IdempotentReplayRollbackError, PermissionDenied."""
        if caller.is_replay:
            check_operation(caller, COMMANDS, is_read=False)
            context = (await load_contexts(tx, [device]))[device.device_id]
            await self._end_replay(tx, caller, context, cmds, now_ms, run_later=True)

    async def run_unattended(
        self, tx: CommandsTx, commands: Sequence[AutomationCommand], now_ms: int
    ) -> Sequence[Execution | DomainError]:
        """Check and queue the commands in `tx`, in a few statements for all. For each, the queued execution or the reason why
        it was not queued."""
        contexts = await load_contexts(tx, [command.request.device for command in commands])
        checked = [self._check_before_permission(contexts, command) for command in commands]
        requests = [
            AutomationGrantCheckInput(
                command.caller,
                command.request.device,
                permission_request(command.request.device, definition, command.request.channel),
            )
            for command, definition in zip(commands, checked, strict=True)
            if isinstance(definition, CommandDefinition)
        ]
        permits = iter(await self.authorizer.authorize_many(tx, requests, now_ms))
        outcomes = [
            definition if isinstance(definition, DomainError) else self._build_or_deny(contexts, command, next(permits), now_ms)
            for command, definition in zip(commands, checked, strict=True)
        ]
        queued = [
            (command.caller, DispatchEntry(command.request.device, outcome))
            for command, outcome in zip(commands, outcomes, strict=True)
            if isinstance(outcome, Execution)
        ]
        await self._queue(tx, queued, now_ms)
        return outcomes

    async def submit_approved(self, tx: CommandsTx, approval: Approval, device: Device, now_ms: int) -> ExecutionId:
        """Check everything again as of now, except the rate limit, which counted the original request."""
        context = await get_context(tx, device.account_id, device.device_id, None)
        request = CommandRequest(
            context.device, approval.cmd, approval.params, approval.ttl_ms, approval.reason, approval.channel
        )
        definition = self._require_definition(context, request)
        _check_accepts_commands(context.device)
        caller = await resolve_requester(tx, approval, now_ms)
        permit = await self.authorizer.authorize(
            tx, caller, context.device, permission_request(context.device, definition, approval.channel), now_ms, spend=False
        )
        _reserve_slot(context)
        execution = self._new_execution(caller, request, TriggeredBy.of(caller), permit.grant_id, now_ms, approval.approval_id)
        await self._queue(tx, [(caller, DispatchEntry(context.device, execution))], now_ms, approval.reason)
        return execution.execution_id

    async def _end_replay(
        self,
        tx: CommandsTx,
        caller: SessionCaller | ApiKeyCaller,
        context: CommandContext,
        cmds: Sequence[tuple[str, int]],
        now_ms: int,
        *,
        run_later: bool = False,
    ) -> None:
        """A repeated request: authorise its commands as of now and end the transaction. A use of a limited grant is not counted
        again. `run_later`: for the commands of a schedule or rule.

        Raises IdempotentReplayRollbackError, or PermissionDenied as `Authorizer.authorize` does."""
        for cmd, channel in cmds:
            definition = find_definition(context, cmd, channel)
            is_query = definition is not None and definition.kind is CommandKind.QUERY
            request = GrantCheckInput.for_device(context.device, cmd, channel, is_query=is_query, runs_later=run_later)
            known = None if run_later else context.grants
            await self.authorizer.authorize(tx, caller, context.device, request, now_ms, spend=False, known=known)
        raise IdempotentReplayRollbackError

    def _require_definition(self, context: CommandContext, request: CommandRequest) -> CommandDefinition:
        definition = require_definition(context, request.cmd, request.channel)
        _check_params(definition, request.params, self.validator)
        return definition

    def _check_before_permission(
        self, contexts: Mapping[DeviceId, CommandContext], command: AutomationCommand
    ) -> CommandDefinition | DomainError:
        """The checks before permission, and the queue length: a counted use of the grant cannot be taken back."""
        context = contexts[command.request.device.device_id]
        try:
            definition = self._require_definition(context, command.request)
            _check_accepts_commands(command.request.device)
            _check_needs_no_approval(definition)
            _reserve_slot(context)
        except DomainError as error:
            return error
        return definition

    def _build_or_deny(
        self,
        contexts: Mapping[DeviceId, CommandContext],
        command: AutomationCommand,
        permit: AccessPermit | DomainError,
        now_ms: int,
    ) -> Execution | DomainError:
        if isinstance(permit, DomainError):
            contexts[command.request.device.device_id].open_count -= 1  # the reserved slot is free again
            return permit
        return self._new_execution(command.caller, command.request, command.triggered_by, permit.grant_id, now_ms)

    def _new_execution(
        self,
        caller: Caller,
        request: CommandRequest,
        triggered_by: TriggeredBy,
        grant_id: GrantId | None,
        now_ms: int,
        approval_id: ApprovalId | None = None,
    ) -> Execution:
        return Execution(
            execution_id=ExecutionId(self.ids.new_id(IdPrefix.EXECUTION)),
            seq=0,
            account_id=request.device.account_id,
            device_id=request.device.device_id,
            device_no=request.device.device_no,
            cmd=request.cmd,
            params=request.params,
            status=ExecutionStatus.QUEUED,
            source=triggered_by,
            requested_by=caller.label,
            grant_id=grant_id,
            created_ms=now_ms,
            expires_ms=now_ms + request.ttl_ms,
            approval_id=approval_id,
            key_id=caller.key_id if isinstance(caller, ApiKeyCaller) else None,
            membership_id=_membership_of(caller),
            session_id=caller.session_id if isinstance(caller, SessionCaller) and caller.operations is not None else None,
            channel=request.channel,
        )

    async def _queue(
        self, tx: CommandsTx, queued: Sequence[tuple[Caller, DispatchEntry]], now_ms: int, reason: str | None = None
    ) -> None:
        if not queued:
            return
        commands = [command for _, command in queued]
        await tx.executions.add_many([command.execution for command in commands])
        for caller, command in queued:
            tx.emit(_command_sent_event(caller, command, now_ms, reason))
        tx.after_commit(lambda: self.dispatch_queue.put(commands))

    async def _request_approval(
        self, tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, request: CommandRequest, grant_id: GrantId | None, now_ms: int
    ) -> Approval:
        approval_id = ApprovalId(self.ids.new_id(IdPrefix.APPROVAL))
        approval = await create_approval(tx, approval_id, caller, request, grant_id, now_ms)
        tx.emit(_approval_requested_event(caller, request, approval, now_ms))
        tx.after_commit(self.wake_approvals)
        return approval


def _membership_of(caller: Caller) -> MembershipId | None:
    """Whose authority the command waits under; None for an API key and for the service itself."""
    if isinstance(caller, SessionCaller):
        return caller.membership_id
    return None if isinstance(caller, ApiKeyCaller) else caller.on_behalf_of


def checked_ttl_ms(ttl_ms: int | None) -> int:
    """The default for None. Raises ValidationFailed."""
    ttl_ms = DEFAULT_TTL_MS if ttl_ms is None else ttl_ms
    if not 1_000 <= ttl_ms <= MAX_TTL_MS:
        raise ValidationFailed.for_field("ttlSeconds", "must be 1 to 86400 seconds.")
    return ttl_ms


def _check_params(definition: CommandDefinition, params: Json, validator: ParamsValidator) -> None:
    """Raises ValidationFailed `INVALID_PARAMS` with a path per fault."""
    fault = _json_size_error(params, "params", MAX_PARAMS_BYTES, MAX_PARAMS_DEPTH)
    faults: Sequence[FieldError] = (fault,) if fault else ()
    if not faults and definition.params_schema is not None:
        faults = validator.validate(definition.params_schema, params)
    elif not faults and definition.command_id is None and params not in (None, {}):
        faults = (FieldError("params", "this command takes no parameters; leave them out."),)
    if faults:
        raise ValidationFailed(
            f"The parameters do not fit the command {definition.name}: {faults[0].field}: {faults[0].message}",
            code="INVALID_PARAMS",
            details=faults,
        )


def _json_size_error(value: Json, field: str, max_bytes: int, max_depth: int) -> FieldError | None:
    """Why a JSON value is too large, or None."""
    if value is None:
        return None
    if is_nested_deeper_than(value, max_depth):
        return FieldError(field, f"is nested deeper than {max_depth} levels; flatten it.")
    try:
        size = len(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())
    except ValueError:
        return FieldError(field, "contains a number that JSON does not have (NaN or infinity).")
    return FieldError(field, f"takes more than {max_bytes} bytes as JSON; shorten it.") if size > max_bytes else None


def _check_accepts_commands(device: Device) -> None:
    """Raises Conflict `DEVICE_PENDING` for a device that never had credentials, PermissionDenied `DEVICE_DISABLED` for one that
    is disabled or revoked."""
    if device.status is DeviceStatus.PENDING:
        raise Conflict("The device is PENDING: it has no credentials yet. Generate credentials first.", code="DEVICE_PENDING")
    if not device.is_active:
        todo = "Enable it" if device.status == "DISABLED" else "Generate credentials"
        raise PermissionDenied(f"The device is {device.status} and takes no commands. {todo} first.", code="DEVICE_DISABLED")


def _check_needs_no_approval(definition: CommandDefinition) -> None:
    """For schedules and rules. Raises ValidationFailed `COMMAND_NEEDS_APPROVAL`."""
    if definition.requires_approval:
        raise ValidationFailed(
            f"{definition.name} needs approval, so it cannot run unattended. Choose another command, or remove the approval.",
            code="COMMAND_NEEDS_APPROVAL",
        )


def action_fault(field: str, error: ValidationFailed) -> ValidationFailed:
    """The fault of a command that is the action of a slot or rule, with the field names of its body: `field` holds `command` and
    `params`."""
    inner = [FieldError("command" if fault.field == "cmd" else fault.field, fault.message) for fault in error.details]
    named = [FieldError(f"{field}.{fault.field}", fault.message) for fault in inner or [FieldError("command", error.message)]]
    return ValidationFailed(f"{field}: {error.message}", code=error.code, details=named)


def _is_queue_full(context: CommandContext) -> bool:
    return context.open_count >= MAX_OPEN_EXECUTIONS


def _reserve_slot(context: CommandContext) -> None:
    """Count one more open command of the device. Raises Conflict `TOO_MANY_QUEUED`."""
    if _is_queue_full(context):
        raise Conflict(
            f"{MAX_OPEN_EXECUTIONS} commands of this device have not ended yet. Wait for them, or set a shorter ttlSeconds.",
            code="TOO_MANY_QUEUED",
        )
    context.open_count += 1


def _command_sent_event(caller: Caller, command: DispatchEntry, now_ms: int, reason: str | None) -> DomainEvent:
    execution, device = command.execution, command.device
    data: dict[str, Json] = {
        "executionId": execution.execution_id,
        "cmd": execution.cmd,
        "channel": execution.channel,
        "source": execution.source.value,
    }
    if execution.approval_id is not None:
        data["approvalId"] = execution.approval_id
    if reason is not None:
        data["reason"] = reason
    text = f"Command {on_channel(execution.cmd, execution.channel)} accepted for the device{_because(reason)}"
    return event_of(caller, "command_sent", text, now_ms, device, **data)


def _approval_requested_event(
    caller: SessionCaller | ApiKeyCaller, request: CommandRequest, approval: Approval, now_ms: int
) -> DomainEvent:
    return event_of(
        caller,
        "approval_requested",
        f"Command {on_channel(request.cmd, request.channel)} waits for approval{_because(approval.reason)}",
        now_ms,
        request.device,
        approvalId=approval.approval_id,
        cmd=request.cmd,
        channel=request.channel,
        requestedBy=approval.requested_by.label,
        reason=approval.reason,
        expiresAt=to_iso(approval.expires_ms),
    )


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
