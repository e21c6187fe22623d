"""What is done to all members of a group: send a command, set or cancel a slot, create a rule.

Each device is decided on its own, by the checks of a single request: its authority, grants, approval and limits. The report has
one outcome per device, in order of their age, and of a command one per channel that it is for. A few devices share a transaction,
so that between two of these others write; what ends the request after the first one is the outcome of all devices that are left.
The first transaction marks the request's `Idempotency-Key`: after a crash in the middle, a repeated request is told so, and does
nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from domain.commands.contexts import get_contexts_for_caller
from domain.commands.model import CommandRequest
from domain.commands.submission import CommandSubmissionResult, CommandSubmissionService, checked_ttl_ms
from domain.devices.channels import RELAY_CHANNEL, ChannelKind
from domain.devices.lookup import get_device
from domain.devices.model import Device, DeviceGroup
from domain.groups.service import DeviceGroupService, GroupsTx, GroupWithMembers
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, Json, event_of
from domain.kernel.errors import Conflict, DomainError, NotFound, PermissionDenied, RateLimited, Unavailable, ValidationFailed
from domain.kernel.folding import fold
from domain.kernel.idempotency import IdempotentReplayRollbackError
from domain.kernel.ids import DeviceId, GroupId
from domain.kernel.unit_of_work import OBJECTS_PER_TRANSACTION, EngineCommitLock, NeedsWriterError, UnitOfWork
from domain.rules.model import Rule
from domain.rules.service import RuleService
from domain.schedules.service import ScheduleInput, ScheduleService, ScheduleWithSyncState, check_slot

_REFUSALS = (NotFound, PermissionDenied, RateLimited, ValidationFailed, Conflict)
"""What a single request may be refused with; any other error ends the whole request."""

AUTOMATIONS_PER_TRANSACTION = 5
"""A slot or rule is saved with several statements, each of which waits for the one before."""

T = TypeVar("T")
Act: TypeAlias = Callable[[Device, int], Awaitable[T]]
"""Of a device and one of its channels."""


@dataclass(frozen=True, slots=True)
class GroupDeviceOutcome(Generic[T]):
    """Of one device, or of one of its channels: `error` is None exactly when it was done."""

    device: Device
    result: T | None = None
    error: DomainError | None = None
    channel: int = RELAY_CHANNEL


@dataclass(frozen=True, slots=True)
class GroupActionReport(Generic[T]):
    """One outcome per member that the caller may see, oldest device first."""

    group: DeviceGroup
    outcomes: Sequence[GroupDeviceOutcome[T]]


@dataclass(frozen=True, slots=True)
class GroupCommandInput:
    cmd: str
    params: Json = None
    ttl_ms: int | None = None
    reason: str | None = None
    channel: int = RELAY_CHANNEL
    channel_kind: ChannelKind | None = None
    """With a kind or a name, every channel that has it is meant instead of `channel`."""
    channel_name: str | None = None

    def channels_of(self, device: Device) -> Sequence[int]:
        if self.channel_kind is None and self.channel_name is None:
            return [self.channel]
        return [
            each.channel
            for each in device.all_channels
            if self.channel_kind in (None, each.kind)
            and (self.channel_name is None or fold(each.name) == fold(self.channel_name))
        ]


@service
class GroupBulkActionService:
    uow: UnitOfWork[GroupsTx]
    clock: Clock
    groups: DeviceGroupService
    commands: CommandSubmissionService
    schedules: ScheduleService
    rules: RuleService
    engine_commit_lock: EngineCommitLock

    async def send(
        self, caller: SessionCaller | ApiKeyCaller, group_id: GroupId, command: GroupCommandInput
    ) -> GroupActionReport[CommandSubmissionResult]:
        """Raises NotFound; ValidationFailed for a wrong `ttlSeconds`."""
        ttl_ms = checked_ttl_ms(command.ttl_ms)
        now_ms = self.clock.now_ms()

        async def submits(tx: GroupsTx, devices: Sequence[Device]) -> Act[CommandSubmissionResult]:
            return await self._submits(tx, caller, devices, command, ttl_ms, now_ms)

        return await self._for_each(
            caller,
            Role.VIEWER,
            group_id,
            submits,
            locks_account=True,
            channels_of=command.channels_of,
            event=lambda report: _command_event(caller, report, command, now_ms),
        )

    async def preview(
        self, caller: SessionCaller | ApiKeyCaller, group_id: GroupId, command: GroupCommandInput
    ) -> GroupActionReport[CommandSubmissionResult]:
        """What `send` would report now: the same, rolled back. Its ids do not exist."""
        ttl_ms = checked_ttl_ms(command.ttl_ms)
        with suppress(NeedsWriterError):
            async with self.uow.rehearse(caller, Role.VIEWER) as tx:
                return await self._preview(tx, caller, group_id, command, ttl_ms)
        try:
            async with self.uow.write(caller, Role.VIEWER, locks_account=True, background=True) as tx:
                raise _GroupPreviewRollbackError(await self._preview(tx, caller, group_id, command, ttl_ms))
        except _GroupPreviewRollbackError as preview:
            return preview.report

    async def _preview(
        self, tx: GroupsTx, caller: SessionCaller | ApiKeyCaller, group_id: GroupId, command: GroupCommandInput, ttl_ms: int
    ) -> GroupActionReport[CommandSubmissionResult]:
        view = await self._view(tx, caller, group_id)
        submit = await self._submits(tx, caller, view.devices, command, ttl_ms, self.clock.now_ms())
        return GroupActionReport(view.group, await _outcomes(caller, view.devices, submit, command.channels_of))

    async def put_schedule(
        self, caller: SessionCaller, group_id: GroupId, slot: int, schedule: ScheduleInput
    ) -> GroupActionReport[ScheduleWithSyncState]:
        """Create or replace the slot of every member. Raises NotFound, PermissionDenied; ValidationFailed for a wrong slot."""
        check_slot(slot)
        now_ms = self.clock.now_ms()

        async def puts(tx: GroupsTx, _: Sequence[Device]) -> Act[ScheduleWithSyncState]:
            return lambda each, _: self.schedules.put_in_transaction(tx, caller, each, slot, schedule, now_ms)

        return await self._for_each(caller, Role.MEMBER, group_id, puts, at_once=AUTOMATIONS_PER_TRANSACTION)

    async def cancel_schedule(self, caller: SessionCaller, group_id: GroupId, slot: int) -> GroupActionReport[None]:
        """Cancel the slot of every member. Raises NotFound, PermissionDenied; ValidationFailed for a wrong slot."""
        check_slot(slot)
        now_ms = self.clock.now_ms()

        async def cancels(tx: GroupsTx, _: Sequence[Device]) -> Act[None]:
            return lambda each, _: self.schedules.cancel_in_transaction(tx, caller, each, slot, now_ms)

        return await self._for_each(caller, Role.MEMBER, group_id, cancels, at_once=AUTOMATIONS_PER_TRANSACTION)

    async def create_rule(self, caller: SessionCaller, group_id: GroupId, fields: Mapping[str, Any]) -> GroupActionReport[Rule]:
        """Create the rule on every member that has none of this name. Raises NotFound, PermissionDenied."""
        now_ms = self.clock.now_ms()

        async def creates(tx: GroupsTx, _: Sequence[Device]) -> Act[Rule]:
            return lambda each, _: self.rules.create_in(tx, caller, each, fields, now_ms, unless_named=True)

        return await self._for_each(
            caller, Role.MEMBER, group_id, creates, at_once=AUTOMATIONS_PER_TRANSACTION, lock=self.engine_commit_lock
        )

    async def _submits(
        self,
        tx: GroupsTx,
        caller: SessionCaller | ApiKeyCaller,
        devices: Sequence[Device],
        command: GroupCommandInput,
        ttl_ms: int,
        now_ms: int,
    ) -> Act[CommandSubmissionResult]:
        contexts = await get_contexts_for_caller(tx, caller, [each.device_id for each in devices])

        async def submit(device: Device, channel: int) -> CommandSubmissionResult:
            context = contexts.get(device.device_id)
            if context is None:
                raise NotFound.for_resource("device", device.device_id)
            request = CommandRequest(context.device, command.cmd, command.params, ttl_ms, command.reason, channel)
            return await self.commands.submit_in_transaction(tx, caller, context, request, now_ms)

        return submit

    async def _for_each(
        self,
        caller: SessionCaller | ApiKeyCaller,
        needs: Role,
        group_id: GroupId,
        begin: Callable[[GroupsTx, Sequence[Device]], Awaitable[Act[T]]],
        *,
        at_once: int = OBJECTS_PER_TRANSACTION,
        channels_of: Callable[[Device], Sequence[int]] = lambda _: (RELAY_CHANNEL,),
        event: Callable[[GroupActionReport[T]], DomainEvent] | None = None,
        locks_account: bool = False,
        lock: AbstractAsyncContextManager[None] | None = None,
    ) -> GroupActionReport[T]:
        """`begin` gives what a transaction does to each of its devices; the last one also stores `event`. Raises what ends the
        first transaction. Of a replay, each is rolled back, and nothing is left to report."""
        outcomes: list[GroupDeviceOutcome[T]] = []
        left: Sequence[Device] | None = None
        rest: Sequence[Device] = ()
        while left is None or left:
            try:
                async with (
                    lock or nullcontext(),
                    self.uow.write(caller, needs, locks_account=locks_account, background=True) as tx,
                ):
                    view = await self._view(tx, caller, group_id, None if left is None else left[:at_once])
                    rest = (view.devices if left is None else left)[at_once:]
                    devices = view.devices[:at_once]
                    done = await _outcomes(caller, devices, await begin(tx, devices), channels_of)
                    group = view.group
                    if event is not None and not rest:
                        tx.emit(event(GroupActionReport(group, [*outcomes, *done])))
                outcomes += done
            except IdempotentReplayRollbackError:
                if not rest:
                    raise
            except DomainError as error:
                if left is None or caller.is_replay:
                    raise
                outcomes += [GroupDeviceOutcome(each, error=error) for each in left]
                await self._log(event, GroupActionReport(group, outcomes))
                break
            left = rest
        return GroupActionReport(group, outcomes)

    async def _log(self, event: Callable[[GroupActionReport[T]], DomainEvent] | None, report: GroupActionReport[T]) -> None:
        """Of a request that ends in the middle: what was done before is done."""
        if event is not None:
            with suppress(Unavailable):
                async with self.uow.write(None, background=True) as tx:
                    tx.emit(event(report))

    async def _view(
        self, tx: GroupsTx, caller: SessionCaller | ApiKeyCaller, group_id: GroupId, among: Sequence[Device] | None = None
    ) -> GroupWithMembers:
        """The group with its members, or those `among` these. For a replay, with the devices that the stored response has results
        of: a device that has left the group is authorised too."""
        ids = None if among is None else [each.device_id for each in among]
        view = await self.groups.view(tx, caller, group_id, ids)
        if not caller.is_replay:
            return view
        replayed = [DeviceId(each) for each in caller.replayed_devices] if ids is None else ids
        return replace(view, devices=[await get_device(tx, caller.account_id, each) for each in replayed])


class _GroupPreviewRollbackError(Exception):
    """Not a failure: ends and rolls back the transaction of a preview."""

    def __init__(self, report: GroupActionReport[CommandSubmissionResult]) -> None:
        super().__init__()
        self.report = report


async def _outcomes(
    caller: SessionCaller | ApiKeyCaller,
    devices: Sequence[Device],
    act: Act[T],
    channels_of: Callable[[Device], Sequence[int]] = lambda _: (RELAY_CHANNEL,),
) -> list[GroupDeviceOutcome[T]]:
    """Of a replay, nothing is left to report: it raises what denies the caller one of the devices."""
    outcomes: list[GroupDeviceOutcome[T]] = []
    for device in devices:
        channels = channels_of(device)
        if not channels:
            missing = ValidationFailed("The device has no such channel; it was left out.", code="UNKNOWN_CHANNEL")
            outcomes.append(GroupDeviceOutcome(device, error=missing))
        for channel in channels:
            try:
                outcomes.append(GroupDeviceOutcome(device, await act(device, channel), channel=channel))
            except IdempotentReplayRollbackError:
                continue
            except _REFUSALS as error:
                if caller.is_replay:
                    raise
                outcomes.append(GroupDeviceOutcome(device, error=error, channel=channel))
    return outcomes


def _command_event(
    caller: SessionCaller | ApiKeyCaller,
    report: GroupActionReport[CommandSubmissionResult],
    command: GroupCommandInput,
    now_ms: int,
) -> DomainEvent:
    refused = Counter(outcome.error.code for outcome in report.outcomes if outcome.error is not None)
    waiting = sum(outcome.result is not None and outcome.result.approval is not None for outcome in report.outcomes)
    queued = len(report.outcomes) - waiting - refused.total()
    text = f"Command {command.cmd} for group {report.group.name}: {queued} queued, {waiting} wait, {refused.total()} refused"
    return event_of(
        caller,
        "command_sent_to_group",
        text,
        now_ms,
        groupId=report.group.group_id,
        cmd=command.cmd,
        channel=command.channel if command.channel_kind is None and command.channel_name is None else None,
        queued=queued,
        waiting=waiting,
        refused={**refused},
    )
