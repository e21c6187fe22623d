"""What is done to all members of a group: send a command, set or cancel a slot, create a rule.

One transaction for all members, in order of their age, so that a request which is repeated with its `Idempotency-Key` after a
crash is done once or not at all. Each device is decided on its own, by the checks of a single request: its authority, grants,
approval and limits. The report has one outcome per device, and of a command one per channel that it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

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
from domain.kernel.errors import Conflict, DomainError, NotFound, PermissionDenied, RateLimited, ValidationFailed
from domain.kernel.folding import fold
from domain.kernel.idempotency import IdempotentReplayRollbackError
from domain.kernel.ids import DeviceId, GroupId
from domain.kernel.unit_of_work import EngineCommitLock, UnitOfWork
from domain.rules.model import Rule
from domain.rules.service import RuleService
from domain.schedules.service import ScheduleInput, ScheduleService, ScheduleWithSyncState, check_slot

_REFUSALS = (NotFound, PermissionDenied, RateLimited, ValidationFailed, Conflict)
"""What a single request may be refused with; any other error ends the whole request."""

T = TypeVar("T")


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
        async with self.uow.write(caller, Role.VIEWER, locks_account=True, background=True) as tx:
            return await self._send(tx, caller, group_id, command, ttl_ms)

    async def preview(
        self, caller: SessionCaller | ApiKeyCaller, group_id: GroupId, command: GroupCommandInput
    ) -> GroupActionReport[CommandSubmissionResult]:
        """What `send` would report now: the same, rolled back. Its ids do not exist."""
        ttl_ms = checked_ttl_ms(command.ttl_ms)
        try:
            async with self.uow.write(caller, Role.VIEWER, locks_account=True, background=True) as tx:
                raise _GroupPreviewRollbackError(await self._send(tx, caller, group_id, command, ttl_ms))
        except _GroupPreviewRollbackError as preview:
            return preview.report

    async def put_schedule(
        self, caller: SessionCaller, group_id: GroupId, slot: int, schedule: ScheduleInput
    ) -> GroupActionReport[ScheduleWithSyncState]:
        """Create or replace the slot of every member. Raises NotFound, PermissionDenied; ValidationFailed for a wrong slot."""
        check_slot(slot)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER, background=True) as tx:
            view = await self._view(tx, caller, group_id)
            return await _for_each(
                caller, view, lambda each: self.schedules.put_in_transaction(tx, caller, each, slot, schedule, now_ms)
            )

    async def cancel_schedule(self, caller: SessionCaller, group_id: GroupId, slot: int) -> GroupActionReport[None]:
        """Cancel the slot of every member. Raises NotFound, PermissionDenied; ValidationFailed for a wrong slot."""
        check_slot(slot)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER, background=True) as tx:
            view = await self._view(tx, caller, group_id)
            return await _for_each(
                caller, view, lambda each: self.schedules.cancel_in_transaction(tx, caller, each, slot, now_ms)
            )

    async def create_rule(self, caller: SessionCaller, group_id: GroupId, fields: Mapping[str, Any]) -> GroupActionReport[Rule]:
        """Create the rule on every member that has none of this name. Raises NotFound, PermissionDenied."""
        now_ms = self.clock.now_ms()
        async with self.engine_commit_lock, self.uow.write(caller, Role.MEMBER, background=True) as tx:
            view = await self._view(tx, caller, group_id)
            return await _for_each(
                caller, view, lambda each: self.rules.create_in(tx, caller, each, fields, now_ms, unless_named=True)
            )

    async def _send(
        self, tx: GroupsTx, caller: SessionCaller | ApiKeyCaller, group_id: GroupId, command: GroupCommandInput, ttl_ms: int
    ) -> GroupActionReport[CommandSubmissionResult]:
        now_ms = self.clock.now_ms()

        view = await self._view(tx, caller, group_id)
        contexts = await get_contexts_for_caller(tx, caller, [each.device_id for each in view.devices])

        async def submit(device: Device, channel: int) -> CommandSubmissionResult:
            context = contexts.get(device.device_id)
            if context is None:
                raise NotFound.for_resource("device", device.device_id)
            request = CommandRequest(context.device, command.cmd, command.params, ttl_ms, command.reason, channel)
            return await self.commands.submit_in_transaction(tx, caller, context, request, now_ms)

        report = await _for_each_channel(caller, view, submit, command.channels_of)
        tx.emit(_command_event(caller, report, command, now_ms))
        return report

    async def _view(self, tx: GroupsTx, caller: SessionCaller | ApiKeyCaller, group_id: GroupId) -> GroupWithMembers:
        """The group with its members. For a replay, with the devices that the stored response has results of: a device that has
        left the group is authorised too."""
        view = await self.groups.view(tx, caller, group_id)
        if not caller.is_replay:
            return view
        devices = [await get_device(tx, caller.account_id, DeviceId(each)) for each in caller.replayed_devices]
        return replace(view, devices=devices)


class _GroupPreviewRollbackError(Exception):
    """Not a failure: ends and rolls back the transaction of a preview."""

    def __init__(self, report: GroupActionReport[CommandSubmissionResult]) -> None:
        super().__init__()
        self.report = report


async def _for_each(
    caller: SessionCaller | ApiKeyCaller, view: GroupWithMembers, act: Callable[[Device], Awaitable[T]]
) -> GroupActionReport[T]:
    return await _for_each_channel(caller, view, lambda device, _: act(device), lambda _: (RELAY_CHANNEL,))


async def _for_each_channel(
    caller: SessionCaller | ApiKeyCaller,
    view: GroupWithMembers,
    act: Callable[[Device, int], Awaitable[T]],
    channels_of: Callable[[Device], Sequence[int]],
) -> GroupActionReport[T]:
    """Of a replay, nothing is left to report: it raises what denies the caller one of the devices."""
    outcomes: list[GroupDeviceOutcome[T]] = []
    for device in view.devices:
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
    return GroupActionReport(view.group, outcomes)


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
