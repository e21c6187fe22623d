"""A command on its way: known? valid? taken by this device? allowed? approved? Then a row in QUEUED, which is the outbox.

The order of the checks is part of the wire contract, and each way in (a caller, a schedule or rule, an approval) goes through the
same ones. Nothing is sent here: what is queued is committed first, and the bell after the commit wakes the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from domain.approvals.model import WAITS_MS, Approval, ApprovalStatus, Requester
from domain.approvals.ports import ApprovalsTx
from domain.commands import policy
from domain.commands.model import (
    DEFAULT_TTL_MS,
    CommandKind,
    Definition,
    Execution,
    ExecutionStatus,
    TriggeredBy,
)
from domain.commands.ports import CommandsTx, Outcomes, ParamsChecker
from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.grants.limit import Quota
from domain.grants.service import Gate, Permit
from domain.kernel.caller import ApiKeyCaller, Caller, Role, Session, System
from domain.kernel.clock import Clock
from domain.kernel.errors import Conflict, Invalid, NotFound, Refused
from domain.kernel.facts import Fact, Json
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
        dispatch_bell: Callable[[], None],
        approval_bell: Callable[[], None],
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._gate = gate
        self._checker = checker
        self._outcomes = outcomes
        self._dispatch_bell = dispatch_bell
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
            device = await device_of(tx, caller.account_id, device_id)
            definition = await self._understood(tx, device, cmd, params)
            policy.check_takes_commands(device)
            permit = await self._permitted(tx, caller, device, definition, now_ms)
            grant_id = permit.grant_id
            if definition.requires_approval and not _is_owner(caller):
                approval = await self._ask(tx, caller, device, cmd, params, ttl_ms, grant_id, now_ms)
                return Submitted(approval=approval, quota=permit.quota)
            source = TriggeredBy.APIKEY if isinstance(caller, ApiKeyCaller) else TriggeredBy.USER
            execution = await self._queue(tx, caller, device, cmd, params, source, grant_id, now_ms, ttl_ms)
        return Submitted(execution=execution, quota=permit.quota)

    async def outcome(self, execution: Execution, wait_s: float) -> Execution:
        """The execution once it has ended, or as it is when the time is up."""
        with self._outcomes.watch(execution.execution_id) as watch:
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
        definition = await self._understood(tx, device, cmd, params)
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
        definition = await self._understood(tx, device, cmd, params)
        policy.check_takes_commands(device)
        _refuse_approval(definition)
        grant_id = (await self._permitted(tx, caller, device, definition, now_ms)).grant_id
        return await self._queue(tx, caller, device, cmd, params, source, grant_id, now_ms, ttl_ms)

    async def release(self, tx: ApprovalsTx, approval: Approval, device: Device, now_ms: int) -> ExecutionId:
        """The rate was counted when the command was asked for; everything else is checked as if it came now."""
        whole = cast(CommandsTx, tx)  # the storage's one transaction has all repositories; the port cannot name ours
        definition = await self._understood(whole, device, approval.cmd, approval.params)
        policy.check_takes_commands(device)
        caller = await _requester(whole, approval)
        grant_id = (await self._permitted(whole, caller, device, definition, now_ms, spend=False)).grant_id
        source = TriggeredBy.APIKEY if isinstance(caller, ApiKeyCaller) else TriggeredBy.USER
        execution = await self._queue(
            whole, caller, device, approval.cmd, approval.params, source, grant_id, now_ms, approval.ttl_ms
        )
        return execution.execution_id

    async def _understood(self, tx: CommandsTx, device: Device, cmd: str, params: Json) -> Definition:
        definition = policy.named(await self.definitions(tx, device), cmd)
        policy.check_params(definition, params, self._checker)
        return definition

    async def _permitted(
        self, tx: CommandsTx, caller: Caller, device: Device, definition: Definition, now_ms: int, *, spend: bool = True
    ) -> Permit:
        return await self._gate.permit(
            tx,
            caller,
            device,
            command=definition.name,
            is_query=definition.kind is CommandKind.QUERY,
            now_ms=now_ms,
            spend=spend,
        )

    async def _queue(
        self,
        tx: CommandsTx,
        caller: Caller,
        device: Device,
        cmd: str,
        params: Json,
        source: TriggeredBy,
        grant_id: GrantId | None,
        now_ms: int,
        ttl_ms: int,
    ) -> Execution:
        if len(await tx.executions.open_of(device.device_id)) >= policy.MAX_OPEN:
            raise Conflict(
                f"{policy.MAX_OPEN} commands of this device have not ended yet. Wait for them, or give a shorter ttlSeconds.",
                code="TOO_MANY_QUEUED",
            )
        execution = await tx.executions.add(
            Execution(
                execution_id=ExecutionId(self._ids.new(Prefix.EXECUTION)),
                seq=0,
                account_id=device.account_id,
                device_id=device.device_id,
                device_no=device.device_no,
                cmd=cmd,
                params=params,
                status=ExecutionStatus.QUEUED,
                source=source,
                requested_by=caller.label,
                grant_id=grant_id,
                created_ms=now_ms,
                expires_ms=now_ms + ttl_ms,
            )
        )
        data: dict[str, Json] = {"executionId": execution.execution_id, "cmd": cmd, "source": source.value}
        await tx.record(_fact(device, caller, "command_sent", f"Command {cmd} accepted for the device", now_ms, data))
        tx.after_commit(self._dispatch_bell)
        return execution

    async def _ask(
        self,
        tx: CommandsTx,
        caller: Session | ApiKeyCaller,
        device: Device,
        cmd: str,
        params: Json,
        ttl_ms: int,
        grant_id: GrantId | None,
        now_ms: int,
    ) -> Approval:
        approval = Approval(
            approval_id=ApprovalId(self._ids.new(Prefix.APPROVAL)),
            account_id=device.account_id,
            device_id=device.device_id,
            cmd=cmd,
            params=params,
            ttl_ms=ttl_ms,
            status=ApprovalStatus.PENDING,
            requested_by=await _as_requester(tx, caller),
            grant_id=grant_id,
            created_ms=now_ms,
            expires_ms=now_ms + WAITS_MS,
        )
        await tx.approvals.add(approval)
        data: dict[str, Json] = {"approvalId": approval.approval_id, "cmd": cmd}
        await tx.record(_fact(device, caller, "approval_requested", f"Command {cmd} waits for approval", now_ms, data))
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


async def _as_requester(tx: CommandsTx, caller: Session | ApiKeyCaller) -> Requester:
    if isinstance(caller, ApiKeyCaller):
        return Requester(caller.name, key_id=caller.key_id)
    user = await tx.users.get(caller.user_id)
    return Requester(user.name if user else "", membership_id=caller.membership_id, user_id=caller.user_id)


async def _requester(tx: CommandsTx, approval: Approval) -> Session | ApiKeyCaller:
    """Who asked, as they stand now. Raises Refused `GRANT_MISSING` when they are gone."""
    asked = approval.requested_by
    if asked.key_id is not None:
        key = await tx.keys.get(approval.account_id, asked.key_id)
        if key is not None and key.enabled:
            return ApiKeyCaller(approval.account_id, key.key_id, key.name)
    elif asked.membership_id is not None:
        member = await tx.memberships.get(asked.membership_id)
        if member is not None and member.account_id == approval.account_id:
            return Session(approval.account_id, member.user_id, member.membership_id, member.role)
    raise Refused(
        f"{asked.name or 'Who asked for this'} has no access any more. Deny the request.", code="GRANT_MISSING"
    )


def _fact(
    device: Device, caller: Caller, kind: str, description: str, now_ms: int, data: dict[str, Json]
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
    )
