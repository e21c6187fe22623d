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
from domain.commands.asking import asked, requester_of
from domain.commands.desk import Desk, Errand, Request, facing_in, facing_of
from domain.commands.model import (
    DEFAULT_TTL_MS,
    CommandKind,
    Definition,
    Execution,
    ExecutionStatus,
    TriggeredBy,
)
from domain.commands.offers import Offer, Offers
from domain.commands.ports import CommandsTx, Outcomes, ParamsChecker
from domain.devices.model import Device
from domain.grants.limit import Quota
from domain.grants.model import Grant
from domain.grants.policy import Ask
from domain.grants.service import Asked, Gate, Permit
from domain.kernel.caller import ApiKeyCaller, Caller, Role, Session, System
from domain.kernel.clock import Clock
from domain.kernel.errors import DomainError, Invalid, NotFound
from domain.kernel.facts import EventKind, Fact, Json
from domain.kernel.ids import ApprovalId, DeviceId, ExecutionId, GrantId, IdSource, Prefix
from domain.kernel.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Submitted:
    """Exactly one of the first two is set. `quota`: what is left of the grant's rate limit, where there is one."""

    execution: Execution | None = None
    approval: Approval | None = None
    quota: Quota | None = None


class CommandService:
    """Also the approvals part's `Release`."""

    def __init__(
        self,
        *,
        uow: UnitOfWork[CommandsTx],
        clock: Clock,
        ids: IdSource,
        gate: Gate,
        checker: ParamsChecker,
        outcomes: Outcomes,
        offers: Offers,
        approval_bell: Callable[[], None],
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._gate = gate
        self._checker = checker
        self._outcomes = outcomes
        self._offers = offers
        self._approval_bell = approval_bell

    async def submit(
        self, caller: Session | ApiKeyCaller, device_id: DeviceId, cmd: str, params: Json = None, *, ttl_ms: int | None = None
    ) -> Submitted:
        """Raises, in this order: NotFound; Invalid `UNKNOWN_COMMAND`, `INVALID_PARAMS`; Refused `DEVICE_DISABLED`; Refused or
        Throttled as the grants part decides; Conflict `TOO_MANY_QUEUED`."""
        ttl_ms = DEFAULT_TTL_MS if ttl_ms is None else ttl_ms
        policy.check_ttl(ttl_ms)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            facing = await facing_of(tx, caller, device_id)
            device = facing.device
            request, desk = Request(device, cmd, params, ttl_ms), Desk.at(facing)
            definition = self._understood(desk, request)
            policy.check_takes_commands(device)
            permit = await self._permitted(tx, caller, device, definition, now_ms, known=facing.grants)
            grant_id = permit.grant_id
            if definition.requires_approval and not _is_owner(caller):
                approval = await self._ask(tx, caller, request, grant_id, now_ms)
                return Submitted(approval=approval, quota=permit.quota)
            desk.take_place(device)
            execution = self._made(caller, request, _source(caller), grant_id, now_ms)
            await self._queue(tx, [(caller, Offer(device, execution))], now_ms)
        return Submitted(execution=execution, quota=permit.quota)

    async def outcome(self, execution: Execution, wait_s: float) -> Execution:
        """The execution once it has ended, or as it is when the time is up."""
        with self._outcomes.watch(execution.execution_id, execution.requested_by) as watch:
            present = await self._stored(execution)
            if present.status.is_final:
                return present
            return await watch.wait(wait_s) or await self._stored(execution)

    async def definitions(self, tx: CommandsTx, device: Device) -> Sequence[Definition]:
        """What counts for the device, one per name."""
        of_type = [] if device.device_type_id is None else await tx.definitions.of_type(device.device_type_id)
        return policy.effective(of_type, await tx.definitions.of_device(device.device_id))

    async def check_unattended(
        self, tx: CommandsTx, caller: Session, device: Device, cmd: str, params: Json, now_ms: int
    ) -> Definition:
        """For a schedule or rule that is being saved. Raises Invalid, also `COMMAND_NEEDS_APPROVAL`, and Refused."""
        definition = self._understood(await Desk.of(tx, [device]), Request(device, cmd, params, DEFAULT_TTL_MS))
        _refuse_approval(definition)
        is_query = definition.kind is CommandKind.QUERY
        await self._gate.permit_later(tx, caller, device, command=cmd, is_query=is_query, now_ms=now_ms)
        return definition

    async def run_unattended(
        self,
        tx: CommandsTx,
        caller: System,
        device: Device,
        cmd: str,
        params: Json,
        *,
        source: TriggeredBy,
        now_ms: int,
        ttl_ms: int = DEFAULT_TTL_MS,
    ) -> Execution:
        """All checks anew, then queued in `tx`. Raises what a refused command raises; then nothing has been written."""
        [outcome] = await self.run_all(tx, [Errand(caller, Request(device, cmd, params, ttl_ms), source)], now_ms)
        if isinstance(outcome, DomainError):
            raise outcome
        return outcome

    async def run_all(
        self, tx: CommandsTx, errands: Sequence[Errand], now_ms: int
    ) -> Sequence[Execution | DomainError]:
        """`run_unattended` of many in a handful of statements: for each what was queued, or why not."""
        desk = await Desk.of(tx, [errand.request.device for errand in errands])
        definitions = [self._ready(desk, errand) for errand in errands]
        asked = [
            Asked(errand.caller, errand.request.device, Ask(definition.name, definition.kind is CommandKind.QUERY))
            for errand, definition in zip(errands, definitions, strict=True)
            if isinstance(definition, Definition)
        ]
        permits = iter(await self._gate.permit_all(tx, asked, now_ms))
        outcomes = [
            definition if isinstance(definition, DomainError) else self._taken(desk, errand, next(permits), now_ms)
            for errand, definition in zip(errands, definitions, strict=True)
        ]
        queued = [
            (errand.caller, Offer(errand.request.device, outcome))
            for errand, outcome in zip(errands, outcomes, strict=True)
            if isinstance(outcome, Execution)
        ]
        await self._queue(tx, queued, now_ms)
        return outcomes

    async def release(self, tx: ApprovalsTx, approval: Approval, device: Device, now_ms: int) -> ExecutionId:
        """The rate was counted when the command was asked for; everything else is checked as if it came now."""
        whole = cast(CommandsTx, tx)  # the storage's one transaction has all repositories; the port cannot name ours
        facing = await facing_in(whole, device.account_id, device.device_id, None)
        device, desk = facing.device, Desk.at(facing)
        request = Request(device, approval.cmd, approval.params, approval.ttl_ms)
        definition = self._understood(desk, request)
        policy.check_takes_commands(device)
        caller = await requester_of(whole, approval)
        permit = await self._permitted(whole, caller, device, definition, now_ms, spend=False)
        desk.take_place(device)
        execution = self._made(caller, request, _source(caller), permit.grant_id, now_ms)
        await self._queue(whole, [(caller, Offer(device, execution))], now_ms)
        return execution.execution_id

    def _understood(self, desk: Desk, request: Request) -> Definition:
        definition = desk.named(request.device, request.cmd)
        policy.check_params(definition, request.params, self._checker)
        return definition

    def _ready(self, desk: Desk, errand: Errand) -> Definition | DomainError:
        """What comes before permission. The place in the queue too, for a use of the grant once counted stays counted."""
        try:
            definition = self._understood(desk, errand.request)
            policy.check_takes_commands(errand.request.device)
            _refuse_approval(definition)
            desk.take_place(errand.request.device)
        except DomainError as refusal:
            return refusal
        return definition

    def _taken(
        self, desk: Desk, errand: Errand, permit: Permit | DomainError, now_ms: int
    ) -> Execution | DomainError:
        if isinstance(permit, DomainError):
            desk.give_back(errand.request.device)
            return permit
        return self._made(errand.caller, errand.request, errand.source, permit.grant_id, now_ms)

    async def _permitted(
        self,
        tx: CommandsTx,
        caller: Caller,
        device: Device,
        definition: Definition,
        now_ms: int,
        *,
        spend: bool = True,
        known: Sequence[Grant] | None = None,
    ) -> Permit:
        is_query = definition.kind is CommandKind.QUERY
        return await self._gate.permit(
            tx, caller, device, command=definition.name, is_query=is_query, now_ms=now_ms, spend=spend, known=known
        )

    def _made(
        self, caller: Caller, request: Request, source: TriggeredBy, grant_id: GrantId | None, now_ms: int
    ) -> Execution:
        return Execution(
            execution_id=ExecutionId(self._ids.new(Prefix.EXECUTION)),
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

    async def _queue(self, tx: CommandsTx, queued: Sequence[tuple[Caller, Offer]], now_ms: int) -> None:
        if not queued:
            return
        offers = [offer for _, offer in queued]
        await tx.executions.add_all([offer.execution for offer in offers])
        for caller, offer in queued:
            execution = offer.execution
            source = execution.source.value
            data: dict[str, Json] = {"executionId": execution.execution_id, "cmd": execution.cmd, "source": source}
            text = f"Command {execution.cmd} accepted for the device"
            await tx.record(_fact(offer.device, caller, "command_sent", text, now_ms, data))
        tx.after_commit(lambda: self._offers.put(offers))

    async def _ask(
        self, tx: CommandsTx, caller: Session | ApiKeyCaller, request: Request, grant_id: GrantId | None, now_ms: int
    ) -> Approval:
        approval_id = ApprovalId(self._ids.new(Prefix.APPROVAL))
        approval = await asked(tx, approval_id, caller, request, grant_id, now_ms)
        data: dict[str, Json] = {"approvalId": approval_id, "cmd": request.cmd}
        text = f"Command {request.cmd} waits for approval"
        await tx.record(_fact(request.device, caller, "approval_requested", text, now_ms, data))
        tx.after_commit(self._approval_bell)
        return approval

    async def _stored(self, execution: Execution) -> Execution:
        async with self._uow.read() as tx:
            present = await tx.executions.find(execution.execution_id)
        if present is None:
            raise NotFound.of("execution", execution.execution_id)
        return present


def _is_owner(caller: Session | ApiKeyCaller) -> bool:
    return isinstance(caller, Session) and caller.role is Role.OWNER


def _refuse_approval(definition: Definition) -> None:
    if definition.requires_approval:
        raise Invalid(
            f"{definition.name} needs approval, so it cannot run unattended. Choose another command, or lift the approval.",
            code="COMMAND_NEEDS_APPROVAL",
        )


def _source(caller: Session | ApiKeyCaller) -> TriggeredBy:
    return TriggeredBy.APIKEY if isinstance(caller, ApiKeyCaller) else TriggeredBy.USER


def _fact(
    device: Device, caller: Caller, kind: EventKind, description: str, now_ms: int, data: dict[str, Json]
) -> Fact:
    return Fact(
        account_id=device.account_id,
        kind=kind,
        description=description,
        at_ms=now_ms,
        source=caller.label,
        device_id=device.device_id,
        data=data,
        address=caller.address,
        device_name=device.name,
    )
