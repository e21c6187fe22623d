"""Accept commands: check each one, then store it as a QUEUED execution, which is the outbox entry.

The order of the checks is part of the wire contract: definition, parameters, device state, permission, approval, queue length.
Callers, schedules, rules and approvals all pass the same checks. This service sends nothing: the dispatcher is woken after the
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.accounts.ports import HasUsers
from domain.approvals.model import Approval
from domain.approvals.ports import HasApprovals
from domain.commands import command_checks
from domain.commands.approval_requester_identity import resolve_requester
from domain.commands.approval_requests import create_approval
from domain.commands.command_submission_events import approval_requested_event, command_sent_event
from domain.commands.definition_model import CommandDefinition, CommandKind
from domain.commands.effective_definitions import effective_definitions, require_definition
from domain.commands.load_command_context import get_context, get_context_for_caller, load_contexts
from domain.commands.local_dispatch_queue import DispatchEntry, DispatchQueue
from domain.commands.model import (
    DEFAULT_TTL_MS,
    AutomationCommand,
    CommandContext,
    CommandRequest,
    Execution,
    ExecutionStatus,
    TriggeredBy,
)
from domain.commands.ports import AutomationTx, HasCommandContexts, HasCommandDefinitions, ParamsValidator
from domain.commands.replay_authorization import end_replay
from domain.devices.model import Device
from domain.grants.authorizer import AccessPermit, Authorizer, AutomationGrantCheckInput
from domain.grants.checks import GrantCheckInput
from domain.grants.model import RemainingRateLimit
from domain.kernel.caller import ApiKeyCaller, Caller, Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import Json
from domain.kernel.errors import DomainError
from domain.kernel.ids import ApprovalId, DeviceId, ExecutionId, GrantId, IdAndSecretGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.ports import HasApiKeys
from domain.team.service_sessions import HasServiceSessionTokens


class CommandTx(AutomationTx, HasApiKeys, HasApprovals, HasCommandContexts, HasServiceSessionTokens, HasUsers, Protocol): ...


@dataclass(frozen=True, slots=True)
class CommandSubmissionResult:
    """Exactly one of the first two is set. `quota`: what is left of the grant's rate limit, where it has one."""

    execution: Execution | None = None
    approval: Approval | None = None
    quota: RemainingRateLimit | None = None


@service
class CommandSubmissionService:
    """Implements `ApprovedCommandSubmitterPort` and `DeviceCommandLister`."""

    uow: UnitOfWork[CommandTx]
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
    ) -> CommandSubmissionResult:
        """`reason`: a line for who approves and for the log.

        Raises, in this order: NotFound; ValidationFailed `UNKNOWN_COMMAND`, `INVALID_PARAMS`; PermissionDenied
        `DEVICE_DISABLED`; what the authorizer raises; Conflict `TOO_MANY_QUEUED`."""
        ttl_ms = DEFAULT_TTL_MS if ttl_ms is None else ttl_ms
        command_checks.check_ttl(ttl_ms)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER) as tx:  # the authorizer asks for the role or grant that the command needs
            context = await get_context_for_caller(tx, caller, device_id)
            return await self.submit_in_transaction(
                tx, caller, context, CommandRequest(context.device, cmd, params, ttl_ms, reason), now_ms
            )

    async def submit_in_transaction(
        self, tx: CommandTx, caller: SessionCaller | ApiKeyCaller, context: CommandContext, request: CommandRequest, now_ms: int
    ) -> CommandSubmissionResult:
        """`submit` as a part of the caller's transaction. When it raises, it has written nothing."""
        if caller.is_replay:
            await end_replay(self.authorizer, tx, caller, context, [request.cmd], now_ms)
        definition = self._require_definition(context, request)
        command_checks.check_accepts_commands(context.device)
        has_room = definition.requires_approval or not command_checks.is_queue_full(context)
        permit = await self.authorizer.authorize(
            tx, caller, context.device, _permission_request(definition), now_ms, spend=has_room, known=context.grants
        )
        if definition.requires_approval and permit.subject_to_approval:
            approval = await self._request_approval(tx, caller, request, permit.grant_id, now_ms)
            return CommandSubmissionResult(approval=approval, quota=permit.quota)
        command_checks.reserve_slot(context)
        execution = self._new_execution(caller, request, TriggeredBy.of(caller), permit.grant_id, now_ms)
        await self._queue(tx, [(caller, DispatchEntry(context.device, execution))], now_ms, request.reason)
        return CommandSubmissionResult(execution=execution, quota=permit.quota)

    async def effective_definitions(self, tx: HasCommandDefinitions, device: Device) -> Sequence[CommandDefinition]:
        """The device's commands, one definition per name."""
        of_type = [] if device.device_type_id is None else await tx.definitions.list_by_device_type(device.device_type_id)
        return effective_definitions(of_type, await tx.definitions.list_by_device(device.device_id))

    async def check_unattended(
        self, tx: AutomationTx, caller: SessionCaller, device: Device, cmd: str, params: Json, now_ms: int
    ) -> CommandDefinition:
        """For a schedule or rule that is being saved. Raises ValidationFailed, also `COMMAND_NEEDS_APPROVAL`, and
        PermissionDenied."""
        context = (await load_contexts(tx, [device]))[device.device_id]
        definition = self._require_definition(context, CommandRequest(device, cmd, params, DEFAULT_TTL_MS))
        command_checks.check_needs_no_approval(definition)
        await self.authorizer.authorize(tx, caller, device, _permission_request(definition, runs_later=True), now_ms)
        return definition

    async def authorize_replay(
        self, tx: AutomationTx, caller: SessionCaller, device: Device, cmds: Sequence[str], now_ms: int
    ) -> None:
        """For a schedule or rule with these commands. Ends the transaction of a replay; nothing for a first request.

        Raises IdempotentReplayRollbackError, PermissionDenied."""
        if caller.is_replay:
            context = (await load_contexts(tx, [device]))[device.device_id]
            await end_replay(self.authorizer, tx, caller, context, cmds, now_ms, run_later=True)

    async def run_unattended(
        self, tx: AutomationTx, commands: Sequence[AutomationCommand], now_ms: int
    ) -> Sequence[Execution | DomainError]:
        """Check and queue the commands in `tx`, in a few statements for all. For each, the queued execution or the reason why
        it was not queued."""
        contexts = await load_contexts(tx, [command.request.device for command in commands])
        checked = [self._check_before_permission(contexts, command) for command in commands]
        requests = [
            AutomationGrantCheckInput(command.caller, command.request.device, _permission_request(definition))
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

    async def submit_approved(self, tx: CommandTx, approval: Approval, device: Device, now_ms: int) -> ExecutionId:
        """Check everything again as of now, except the rate limit, which counted the original request."""
        context = await get_context(tx, device.account_id, device.device_id, None)
        request = CommandRequest(context.device, approval.cmd, approval.params, approval.ttl_ms, approval.reason)
        definition = self._require_definition(context, request)
        command_checks.check_accepts_commands(context.device)
        caller = await resolve_requester(tx, approval, now_ms)
        permit = await self.authorizer.authorize(tx, caller, context.device, _permission_request(definition), now_ms, spend=False)
        command_checks.reserve_slot(context)
        execution = self._new_execution(caller, request, TriggeredBy.of(caller), permit.grant_id, now_ms, approval.approval_id)
        await self._queue(tx, [(caller, DispatchEntry(context.device, execution))], now_ms, approval.reason)
        return execution.execution_id

    def _require_definition(self, context: CommandContext, request: CommandRequest) -> CommandDefinition:
        definition = require_definition(context, request.cmd)
        command_checks.check_params(definition, request.params, self.validator)
        return definition

    def _check_before_permission(
        self, contexts: Mapping[DeviceId, CommandContext], command: AutomationCommand
    ) -> CommandDefinition | DomainError:
        """The checks before permission, and the queue length: a counted use of the grant cannot be taken back."""
        context = contexts[command.request.device.device_id]
        try:
            definition = self._require_definition(context, command.request)
            command_checks.check_accepts_commands(command.request.device)
            command_checks.check_needs_no_approval(definition)
            command_checks.reserve_slot(context)
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
            command_checks.release_slot(contexts[command.request.device.device_id])
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
        )

    async def _queue(
        self, tx: AutomationTx, queued: Sequence[tuple[Caller, DispatchEntry]], now_ms: int, reason: str | None = None
    ) -> None:
        if not queued:
            return
        commands = [command for _, command in queued]
        await tx.executions.add_many([command.execution for command in commands])
        for caller, command in queued:
            await tx.emit(command_sent_event(caller, command, now_ms, reason))
        tx.after_commit(lambda: self.dispatch_queue.put(commands))

    async def _request_approval(
        self, tx: CommandTx, caller: SessionCaller | ApiKeyCaller, request: CommandRequest, grant_id: GrantId | None, now_ms: int
    ) -> Approval:
        approval_id = ApprovalId(self.ids.new_id(IdPrefix.APPROVAL))
        approval = await create_approval(tx, approval_id, caller, request, grant_id, now_ms)
        await tx.emit(approval_requested_event(caller, request, approval, now_ms))
        tx.after_commit(self.wake_approvals)
        return approval


def _permission_request(definition: CommandDefinition, *, runs_later: bool = False) -> GrantCheckInput:
    return GrantCheckInput(definition.name, definition.kind is CommandKind.QUERY, runs_later)
