"""A command on its way: known? valid? taken by this device? allowed? approved? Then a row in QUEUED, which is the outbox.

The order of the checks is part of the wire contract, and each way in (a caller, a schedule or rule, an approval) goes through the
same ones. Nothing is sent here: what is queued is committed first, and the bell after the commit wakes the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from domain.approvals.model import Approval
from domain.approvals.ports import ApprovalsTx
from domain.commands import policy
from domain.commands.approval_requests import create_approval, resolve_requester
from domain.commands.command_context import (
    AutomationCommand,
    CommandContext,
    CommandRequest,
    get_context_row,
    get_context_row_for_caller,
)
from domain.commands.dispatch_queue import DispatchQueue, QueuedCommand
from domain.commands.model import (
    DEFAULT_TTL_MS,
    CommandDefinition,
    CommandKind,
    Execution,
    ExecutionStatus,
    TriggeredBy,
)
from domain.commands.ports import CommandsTx, ExecutionWaiter, ParamsValidator
from domain.devices.model import Device
from domain.grants.authorizer import Authorizer, AutomationPermissionRequest, Permit
from domain.grants.model import Grant
from domain.grants.policy import PermissionRequest
from domain.grants.rate_limit import RateLimitQuota
from domain.kernel.caller import ApiKeyCaller, Caller, Session, SystemCaller
from domain.kernel.clock import Clock
from domain.kernel.domain_events import DomainEvent, Json
from domain.kernel.errors import DomainError, NotFound, ValidationFailed
from domain.kernel.ids import ApprovalId, DeviceId, ExecutionId, GrantId, IdGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """Exactly one of the first two is set. `quota`: what is left of the grant's rate limit, where there is one."""

    execution: Execution | None = None
    approval: Approval | None = None
    quota: RateLimitQuota | None = None


class CommandService:
    """Also the approvals part's `Release`."""

    def __init__(
        self,
        *,
        uow: UnitOfWork[CommandsTx],
        clock: Clock,
        ids: IdGenerator,
        gate: Authorizer,
        checker: ParamsValidator,
        outcomes: ExecutionWaiter,
        offers: DispatchQueue,
        approval_bell: Callable[[], None],
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._authorizer = gate
        self._validator = checker
        self._execution_waiter = outcomes
        self._dispatch_queue = offers
        self._wake_approvals = approval_bell

    async def submit(
        self, caller: Session | ApiKeyCaller, device_id: DeviceId, cmd: str, params: Json = None, *, ttl_ms: int | None = None
    ) -> SubmissionResult:
        """Raises, in this order: NotFound; Invalid `UNKNOWN_COMMAND`, `INVALID_PARAMS`; Refused `DEVICE_DISABLED`; Refused or
        Throttled as the grants part decides; Conflict `TOO_MANY_QUEUED`."""
        ttl_ms = DEFAULT_TTL_MS if ttl_ms is None else ttl_ms
        policy.check_ttl(ttl_ms)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            facing = await get_context_row_for_caller(tx, caller, device_id)
            device = facing.device
            request, desk = CommandRequest(device, cmd, params, ttl_ms), CommandContext.for_device(facing)
            definition = self._resolve_definition(desk, request)
            policy.check_accepts_commands(device)
            permit = await self._authorize(tx, caller, device, definition, now_ms, known=facing.grants)
            grant_id = permit.grant_id
            if definition.requires_approval and permit.subject_to_approval:
                approval = await self._request_approval(tx, caller, request, grant_id, now_ms)
                return SubmissionResult(approval=approval, quota=permit.quota)
            desk.reserve_slot(device)
            execution = self._new_execution(caller, request, _triggered_by(caller), grant_id, now_ms)
            await self._queue(tx, [(caller, QueuedCommand(device, execution))], now_ms)
        return SubmissionResult(execution=execution, quota=permit.quota)

    async def wait_for_result(self, execution: Execution, wait_s: float) -> Execution:
        """The execution once it has ended, or as it is when the time is up."""
        with self._execution_waiter.watch(execution.execution_id, execution.requested_by) as watch:
            present = await self._load(execution)
            if present.status.is_final:
                return present
            return await watch.wait(wait_s) or await self._load(execution)

    async def effective_definitions(self, tx: CommandsTx, device: Device) -> Sequence[CommandDefinition]:
        """What counts for the device, one per name."""
        of_type = [] if device.device_type_id is None else await tx.definitions.list_by_device_type(device.device_type_id)
        return policy.effective_definitions(of_type, await tx.definitions.list_by_device(device.device_id))

    async def check_unattended(
        self, tx: CommandsTx, caller: Session, device: Device, cmd: str, params: Json, now_ms: int
    ) -> CommandDefinition:
        """For a schedule or rule that is being saved. Raises Invalid, also `COMMAND_NEEDS_APPROVAL`, and Refused."""
        definition = self._resolve_definition(
            await CommandContext.load(tx, [device]), CommandRequest(device, cmd, params, DEFAULT_TTL_MS)
        )
        _check_needs_no_approval(definition)
        is_query = definition.kind is CommandKind.QUERY
        await self._authorizer.authorize_later(tx, caller, device, command=cmd, is_query=is_query, now_ms=now_ms)
        return definition

    async def run_unattended(
        self,
        tx: CommandsTx,
        caller: SystemCaller,
        device: Device,
        cmd: str,
        params: Json,
        *,
        source: TriggeredBy,
        now_ms: int,
        ttl_ms: int = DEFAULT_TTL_MS,
    ) -> Execution:
        """All checks anew, then queued in `tx`. Raises what a refused command raises; then nothing has been written."""
        [outcome] = await self.run_many_unattended(
            tx, [AutomationCommand(caller, CommandRequest(device, cmd, params, ttl_ms), source)], now_ms
        )
        if isinstance(outcome, DomainError):
            raise outcome
        return outcome

    async def run_many_unattended(
        self, tx: CommandsTx, errands: Sequence[AutomationCommand], now_ms: int
    ) -> Sequence[Execution | DomainError]:
        """`run_unattended` of many in a handful of statements: for each what was queued, or why not."""
        desk = await CommandContext.load(tx, [errand.request.device for errand in errands])
        definitions = [self._check_before_permission(desk, errand) for errand in errands]
        asked = [
            AutomationPermissionRequest(
                errand.caller, errand.request.device, PermissionRequest(definition.name, definition.kind is CommandKind.QUERY)
            )
            for errand, definition in zip(errands, definitions, strict=True)
            if isinstance(definition, CommandDefinition)
        ]
        permits = iter(await self._authorizer.authorize_many(tx, asked, now_ms))
        outcomes = [
            definition if isinstance(definition, DomainError) else self._build_or_deny(desk, errand, next(permits), now_ms)
            for errand, definition in zip(errands, definitions, strict=True)
        ]
        queued = [
            (errand.caller, QueuedCommand(errand.request.device, outcome))
            for errand, outcome in zip(errands, outcomes, strict=True)
            if isinstance(outcome, Execution)
        ]
        await self._queue(tx, queued, now_ms)
        return outcomes

    async def submit_approved(self, tx: ApprovalsTx, approval: Approval, device: Device, now_ms: int) -> ExecutionId:
        """The rate was counted when the command was asked for; everything else is checked as if it came now."""
        whole = cast(CommandsTx, tx)  # the storage's one transaction has all repositories; the port cannot name ours
        facing = await get_context_row(whole, device.account_id, device.device_id, None)
        device, desk = facing.device, CommandContext.for_device(facing)
        request = CommandRequest(device, approval.cmd, approval.params, approval.ttl_ms)
        definition = self._resolve_definition(desk, request)
        policy.check_accepts_commands(device)
        caller = await resolve_requester(whole, approval)
        permit = await self._authorize(whole, caller, device, definition, now_ms, spend=False)
        desk.reserve_slot(device)
        execution = self._new_execution(caller, request, _triggered_by(caller), permit.grant_id, now_ms)
        await self._queue(whole, [(caller, QueuedCommand(device, execution))], now_ms)
        return execution.execution_id

    def _resolve_definition(self, desk: CommandContext, request: CommandRequest) -> CommandDefinition:
        definition = desk.get_definition(request.device, request.cmd)
        policy.check_params(definition, request.params, self._validator)
        return definition

    def _check_before_permission(self, desk: CommandContext, errand: AutomationCommand) -> CommandDefinition | DomainError:
        """What comes before permission. The place in the queue too, for a use of the grant once counted stays counted."""
        try:
            definition = self._resolve_definition(desk, errand.request)
            policy.check_accepts_commands(errand.request.device)
            _check_needs_no_approval(definition)
            desk.reserve_slot(errand.request.device)
        except DomainError as refusal:
            return refusal
        return definition

    def _build_or_deny(
        self, desk: CommandContext, errand: AutomationCommand, permit: Permit | DomainError, now_ms: int
    ) -> Execution | DomainError:
        if isinstance(permit, DomainError):
            desk.release_slot(errand.request.device)
            return permit
        return self._new_execution(errand.caller, errand.request, errand.source, permit.grant_id, now_ms)

    async def _authorize(
        self,
        tx: CommandsTx,
        caller: Caller,
        device: Device,
        definition: CommandDefinition,
        now_ms: int,
        *,
        spend: bool = True,
        known: Sequence[Grant] | None = None,
    ) -> Permit:
        is_query = definition.kind is CommandKind.QUERY
        return await self._authorizer.authorize(
            tx, caller, device, command=definition.name, is_query=is_query, now_ms=now_ms, spend=spend, known=known
        )

    def _new_execution(
        self, caller: Caller, request: CommandRequest, source: TriggeredBy, grant_id: GrantId | None, now_ms: int
    ) -> Execution:
        return Execution(
            execution_id=ExecutionId(self._ids.new_id(IdPrefix.EXECUTION)),
            seq=0,
            account_id=request.device.account_id,
            device_id=request.device.device_id,
            device_no=request.device.device_no,
            cmd=request.cmd,
            params=request.params,
            status=ExecutionStatus.QUEUED,
            source=source,
            requested_by=caller.label,
            grant_id=grant_id,
            created_ms=now_ms,
            expires_ms=now_ms + request.ttl_ms,
        )

    async def _queue(self, tx: CommandsTx, queued: Sequence[tuple[Caller, QueuedCommand]], now_ms: int) -> None:
        if not queued:
            return
        offers = [offer for _, offer in queued]
        await tx.executions.add_many([offer.execution for offer in offers])
        for caller, offer in queued:
            execution = offer.execution
            source = execution.source.value
            data: dict[str, Json] = {"executionId": execution.execution_id, "cmd": execution.cmd, "source": source}
            text = f"Command {execution.cmd} accepted for the device"
            device = offer.device
            await tx.emit(
                DomainEvent.from_caller(
                    caller, "command_sent", text, now_ms, device_id=device.device_id, device_name=device.name, data=data
                )
            )
        tx.after_commit(lambda: self._dispatch_queue.put(offers))

    async def _request_approval(
        self, tx: CommandsTx, caller: Session | ApiKeyCaller, request: CommandRequest, grant_id: GrantId | None, now_ms: int
    ) -> Approval:
        approval_id = ApprovalId(self._ids.new_id(IdPrefix.APPROVAL))
        approval = await create_approval(tx, approval_id, caller, request, grant_id, now_ms)
        data: dict[str, Json] = {"approvalId": approval_id, "cmd": request.cmd}
        text = f"Command {request.cmd} waits for approval"
        device = request.device
        await tx.emit(
            DomainEvent.from_caller(
                caller, "approval_requested", text, now_ms, device_id=device.device_id, device_name=device.name, data=data
            )
        )
        tx.after_commit(self._wake_approvals)
        return approval

    async def _load(self, execution: Execution) -> Execution:
        async with self._uow.read() as tx:
            present = await tx.executions.find(execution.execution_id)
        if present is None:
            raise NotFound.for_resource("execution", execution.execution_id)
        return present


def _check_needs_no_approval(definition: CommandDefinition) -> None:
    if definition.requires_approval:
        raise ValidationFailed(
            f"{definition.name} needs approval, so it cannot run unattended. Choose another command, or lift the approval.",
            code="COMMAND_NEEDS_APPROVAL",
        )


def _triggered_by(caller: Session | ApiKeyCaller) -> TriggeredBy:
    return TriggeredBy.APIKEY if isinstance(caller, ApiKeyCaller) else TriggeredBy.USER
