"""Send commands from the outbox to the devices: QUEUED → SENT when a live connection takes the command, in order per device.

The execution row is the outbox. A command is sent first and recorded afterwards: after a crash in between it is sent again with
the same id, which our firmware recognises and does not run twice. Sent commands stay in memory until they are recorded, so only
a crash causes a repeat. An offline device costs nothing; when it subscribes again it gets all its open commands, oldest first.
Only one worker drives this service.

Commands of this process arrive through the `DispatchQueue`. The database is scanned at startup, after an overflow of that queue,
and periodically.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from domain.commands.authority import QueuedCommandAuthority
from domain.commands.dispatch_queue import DispatchEntry, DispatchQueue
from domain.commands.model import Execution, ExecutionStatus
from domain.commands.ports import CommandsTx, ExecutionTransition, ExecutionWaiter
from domain.commands.reports import build_result, can_resend, command_result_event, expire_execution
from domain.devices.absence import Absence, AbsenceTracker
from domain.devices.channels import RELAY_CHANNEL
from domain.devices.link import OutboundDeviceMessagePort, PublishResult
from domain.devices.messages import DeviceCodec, OutboundCommand
from domain.devices.model import Device, FirmwareProfile, takes_channel
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock, ClockStepDetector
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import Json
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.life import DatabaseLife
from domain.kernel.unit_of_work import UnitOfWork

PAGE_SIZE = 200
MAX_READY_PER_ROUND = 50
MAX_EXPIRED_PER_ROUND = 50
"""One short transaction; between two of them others write, and what is queued is sent."""
MAX_RECENTLY_SENT = 5 * PAGE_SIZE
"""Ids of the last sent commands. A queued command may arrive after a database scan has already found it."""
UNCHECKED_MS = SECOND_MS
"""A younger command was checked just now, and what ends its authority ends it in the same transaction."""
MAX_UNNOTICED_MS = MINUTE_MS
"""The clock may have been set this long before the dispatcher notices; it looks every 30 s. Commands that were created since have
their deadlines by the new time."""
_FAILURES: Mapping[PublishResult | None, str] = {None: "UNSUPPORTED", PublishResult.TOO_LARGE: "TOO_LARGE_FOR_DEVICE"}
"""Result codes of commands that no later attempt can deliver."""
UNKNOWN_CHANNEL = "UNKNOWN_CHANNEL"
"""Result code of a command for a channel that the firmware does not have."""


QueuedForDevice = tuple[Device, dict[ExecutionId, Execution]]
"""A device and its queued executions, in order."""


class CommandLossWindow(NamedTuple):
    """A command sent from `from_ms` on and before `until_ms` (Unix ms) may be lost with an earlier connection."""

    from_ms: int
    until_ms: int

    @classmethod
    def before(cls, subscribed_ms: int, held_until_ms: int) -> CommandLossWindow:
        """`held_until_ms` as in `InboundDeviceSubscribed`."""
        return cls(held_until_ms + 1 if held_until_ms else 0, subscribed_ms)

    def merge(self, other: CommandLossWindow | None) -> CommandLossWindow:
        return self if other is None else CommandLossWindow(min(self.from_ms, other.from_ms), max(self.until_ms, other.until_ms))


DispatchItem = tuple[Device, Sequence[Execution], CommandLossWindow | None]
"""A device, its commands to send, and which of the sent ones may be lost, if it has just subscribed."""


@service
class CommandDispatchService:
    """`wake` wakes the worker that calls `send_queued`."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    link: OutboundDeviceMessagePort
    codec: DeviceCodec
    execution_waiter: ExecutionWaiter
    dispatch_queue: DispatchQueue
    absence: AbsenceTracker
    wake: Callable[[], None]
    life: DatabaseLife = field(default_factory=DatabaseLife)
    authority: QueuedCommandAuthority | None = None
    """None: nothing is checked again."""
    front: str | None = None
    """This instance of a cluster."""
    awaited_hellos: Collection[int] = frozenset()
    """The numbers of devices that have connected and not said yet which channels they have."""
    deadlines: DeadlineClock = field(init=False)
    _subscriptions: Subscriptions = field(init=False)
    _needs_backlog: set[DeviceId] = field(default_factory=set, init=False)
    """Devices with QUEUED commands that could not be sent."""
    _awaiting_hello: dict[int, CommandLossWindow] = field(default_factory=dict, init=False)
    """Device number → which of its commands for other channels may be lost; they wait for its `hello`."""
    _rescan_after_seq: int | None = field(default=0, init=False)
    """A database scan is running and has passed this `seq`; None: no scan is running."""
    _sent_not_recorded: list[ExecutionTransition] = field(default_factory=list, init=False)
    """Sent but not yet recorded, in this order."""
    _recently_sent: dict[ExecutionId, None] = field(default_factory=dict, init=False)
    _next_expiry_ms: int | None = field(default=None, init=False)
    """A lower bound of the next deadline; None: unknown."""
    sent: int = field(default=0, init=False)
    resent: int = field(default=0, init=False)
    expired_in_queue: int = field(default=0, init=False)
    """Commands that expired although their device was connected: they waited here for longer than their deadlines."""
    _rescans: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.deadlines = DeadlineClock(uow=self.uow, clock=self.clock, absence=self.absence)
        self._subscriptions = Subscriptions(link=self.link)

    def on_device_ready(self, device_no: int, since_ms: int, held_until_ms: int = 0) -> None:
        """The device has subscribed to its commands. `held_until_ms` as in `InboundDeviceSubscribed`."""
        self.on_subscribed(device_no, since_ms, to_commands=True, held_until_ms=held_until_ms)

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool = False, held_until_ms: int = 0) -> None:
        if self._subscriptions.on_subscribed(device_no, at_ms, to_commands=to_commands, held_until_ms=held_until_ms):
            self.rescan()
        elif not to_commands:
            return
        self.wake()

    def rescan(self) -> None:
        """Scan the whole queue, for commands of other instances and for connections without a notification."""
        self._rescan_after_seq = 0
        self._next_expiry_ms = None
        self._rescans += 1

    def rescan_and_reset(self) -> None:
        """Periodic `rescan` that also stops waiting for overdue subscription notifications."""
        self._subscriptions.expire_pending()
        self.rescan()

    def begin_life(self) -> None:
        """The database is another one: what this process remembers of commands may not be there."""
        self.dispatch_queue.clear()
        self._sent_not_recorded.clear()
        self.rescan_and_reset()
        self.wake()

    async def send_queued(self) -> bool:
        """Send one bounded batch. True when there is more to send now. Nothing is sent before a new life of the database is
        settled."""
        if not self.life.is_recovered:
            return False
        await self._record_sent()
        await self._follow_clock()
        if not self.life.is_recovered:
            return False
        ready = self._subscriptions.pop_ready(MAX_READY_PER_ROUND)
        try:
            more = await self._dispatch_round(ready)
        except BaseException:
            self._subscriptions.requeue(ready)
            self.rescan()
            raise
        return self.life.is_recovered and (more or len(self._subscriptions) > 0 or len(self.dispatch_queue) > 0)

    async def expire_batch(self) -> bool:
        """Expire one batch of overdue executions. True when there may be more."""
        if not self.life.is_recovered:
            return False
        await self._follow_clock()
        now_ms = self.deadlines.now_ms()
        self._next_expiry_ms = None
        async with self.uow.write(caller=None, background=True) as tx:
            if not self.life.is_recovered:
                return False  # the transaction has found another life, which may not know what was sent
            overdue = await tx.executions.list_expired(now_ms, MAX_EXPIRED_PER_ROUND)
            elsewhere = await self._list_held_elsewhere(tx, overdue)
            transitions = [expire_execution(each, now_ms, may_be_sent=each.device_no in elsewhere) for each in overdue]
            await self._write_transitions(tx, transitions, now_ms)
        self.expired_in_queue += sum(one.sent_ms is None and self.link.is_connected(one.device_id) for one in overdue)
        return len(overdue) == MAX_EXPIRED_PER_ROUND

    async def _list_held_elsewhere(self, tx: CommandsTx, executions: Sequence[Execution]) -> Collection[int]:
        """The numbers of the devices whose connection another instance has, or had when it was last heard of. It may have sent a
        command and be hung or killed before it recorded that, so only the instance with the connection knows better."""
        queued = {one.device_no: one.device_id for one in executions if one.status is ExecutionStatus.QUEUED}
        if self.front is None or not queued:
            return ()
        fronts = await tx.device_sessions.fronts(queued)
        return {no for no, front in fronts.items() if front != self.front or not self.link.is_connected(queued[no])}

    async def next_expiry_ms(self) -> int | None:
        """A time not later than the next deadline. Read from the database once, then kept up to date by each new command. None
        while a new life of the database is not settled: `begin_life` wakes the worker."""
        if not self.life.is_recovered:
            return None
        if self._next_expiry_ms is not None:
            return self._next_expiry_ms
        rescans = self._rescans
        async with self.uow.read() as tx:
            found = await tx.executions.next_expiry_ms()
        if rescans == self._rescans:  # otherwise something has changed since the read
            self._next_expiry_ms = found
        return found

    async def _follow_clock(self) -> None:
        if await self.deadlines.follow():
            self.dispatch_queue.clear()  # what it has contains the deadlines of before
            self.rescan()

    async def _dispatch_round(self, ready: dict[int, CommandLossWindow]) -> bool:
        if self.dispatch_queue.has_overflowed:
            self.dispatch_queue.has_overflowed = False
            self._rescan_after_seq = self._rescan_after_seq or 0
        if ready or self._rescan_after_seq is not None:
            items = await self._load_backlog(ready)
        else:
            commands = self._pop_queued()
            if any(map(self.link.is_connected, {one.device.device_id for one in commands} & self._needs_backlog)):
                async with self.uow.read() as tx:
                    items = await self._connected_only(tx, group_by_device(commands))
            else:
                items = await self._connected_only(None, group_by_device(commands))
        items = await self._drop_unauthorized(items)
        if not self.life.is_recovered:  # what was read is of another life
            self._subscriptions.requeue(ready)
            self.rescan()
            return False
        for device, executions, window in items:
            await self._deliver(device, executions, window)
        await self._record_sent()
        return self._rescan_after_seq is not None

    async def _drop_unauthorized(self, items: Sequence[DispatchItem]) -> Sequence[DispatchItem]:
        """End what has waited and may not run any more; nothing of it is sent, nor sent again."""
        now_ms = self.clock.now_ms()
        waited = [each for _, executions, _ in items for each in executions if not 0 <= now_ms - each.created_ms < UNCHECKED_MS]
        if self.authority is None or not waited:
            return items
        async with self.uow.read() as tx:
            codes = await self.authority.find_unauthorized(tx, waited, now_ms)
        if not codes:
            return items
        async with self.uow.write(caller=None) as tx:
            for event in await self.authority.cancel(tx, codes, waited, "service", now_ms):
                tx.emit(event)
        return [
            (device, [each for each in executions if each.execution_id not in codes], window)
            for device, executions, window in items
        ]

    async def _load_backlog(self, ready: Mapping[int, CommandLossWindow]) -> Sequence[DispatchItem]:
        """The open commands of newly subscribed devices, and the next page of a running scan. A new command must not overtake
        older ones on a later page, nor wait for a long scan: its device gets its whole backlog."""
        items: list[DispatchItem] = []
        commands: Sequence[DispatchEntry] = ()
        next_after_seq: int | None = None
        after_seq, self._rescan_after_seq = self._rescan_after_seq, None  # `rescan` during the reads starts a new scan
        async with self.uow.read() as tx:
            if ready:
                ready_devices = {device.device_no: device for device in await tx.devices.list_by_numbers(ready)}
                open_executions = await tx.executions.list_open_by_devices(
                    {device.device_id for device in ready_devices.values()}
                )
                listening = [(ready_devices[number], window) for number, window in ready.items() if number in ready_devices]
                items = [(device, open_executions.get(device.device_id, ()), window) for device, window in listening]
            if after_seq is not None:
                page = await tx.executions.list_queued(PAGE_SIZE, after_seq)
                commands = await DispatchEntry.load_devices(tx, page)
                next_after_seq = page[-1].seq if len(page) == PAGE_SIZE else None
            new_commands = self._pop_queued()
            if next_after_seq is not None:
                self._needs_backlog.update(command.device.device_id for command in new_commands)
            commands = [*commands, *new_commands]
            by_device = group_by_device(commands)
            items = [
                (device, append_queued(open_, by_device.pop(device.device_id, None)), since) for device, open_, since in items
            ]
            items += await self._connected_only(tx, by_device)
        if self._rescan_after_seq is None:
            self._rescan_after_seq = next_after_seq
        return items

    def _pop_queued(self) -> Sequence[DispatchEntry]:
        commands = [
            one for one in self.dispatch_queue.pop_batch(PAGE_SIZE) if one.execution.execution_id not in self._recently_sent
        ]
        if self._next_expiry_ms is not None:
            self._next_expiry_ms = min([self._next_expiry_ms, *(command.execution.expires_ms for command in commands)])
        return commands

    async def _connected_only(
        self, tx: CommandsTx | None, by_device: Mapping[DeviceId, QueuedForDevice]
    ) -> Sequence[DispatchItem]:
        """Only connected devices. A device with a backlog gets all of it, to keep the order."""
        items: list[DispatchItem] = []
        for device_id, (device, executions) in by_device.items():
            if not self.link.is_connected(device_id):
                self._needs_backlog.add(device_id)
            elif tx is not None and device_id in self._needs_backlog:
                items.append(
                    (device, append_queued(await tx.executions.list_open_by_device(device_id), (device, executions)), None)
                )
            elif device_id not in self._needs_backlog:
                items.append((device, list(executions.values()), None))
            else:  # it reconnected during this round: send its whole backlog in the next one
                self.rescan()
        return items

    async def _deliver(self, device: Device, executions: Sequence[Execution], window: CommandLossWindow | None) -> None:
        """Send in order and stop at the first command that is not taken. A command sent within `window` may have been lost
        with an earlier connection and is sent again."""
        self._needs_backlog.discard(device.device_id)
        now_ms = self.deadlines.now_ms()
        for execution in executions:
            lost = self._loss_window(device, execution, window)
            if execution.sent_ms is not None and not can_be_lost(device, execution, lost):
                continue
            if execution.expires_ms <= now_ms or not device.is_active:
                continue
            if not self._subscriptions.can_send(device, window):
                self._needs_backlog.add(device.device_id)
                return
            if self._awaits_channel(device, execution, lost):
                self._needs_backlog.add(device.device_id)
                continue
            result = await self._send(device, execution, now_ms)
            failure = _FAILURES.get(result)
            if result is None and not takes_channel(device, execution.channel):
                failure = UNKNOWN_CHANNEL
            if failure is None and not result:
                self._needs_backlog.add(device.device_id)
                if result is PublishResult.UNCONFIRMED:
                    self._sent_not_recorded.append((replace(execution, sent_ms=now_ms), execution.status))
                return
            self._remember_sent(execution)
            if failure is not None:
                self._add_transition(execution, ExecutionStatus.FAILED, now_ms, build_result(failure))
            elif execution.status is ExecutionStatus.SENT:
                self.resent += 1
            else:
                self._add_sent(execution, now_ms)
        if device.device_no not in self.awaited_hellos:
            self._awaiting_hello.pop(device.device_no, None)

    def _loss_window(self, device: Device, execution: Execution, window: CommandLossWindow | None) -> CommandLossWindow | None:
        """`window`, and for another channel that of the subscription before the `hello`."""
        awaited = self._awaiting_hello.get(device.device_no)
        return window if awaited is None or execution.channel == RELAY_CHANNEL else awaited.merge(window)

    def _awaits_channel(self, device: Device, execution: Execution, lost: CommandLossWindow | None) -> bool:
        """Whether the command waits for the device's `hello`: its firmware may be another one than at the last connection, and
        one that does not know channels would switch its relay."""
        if execution.channel == RELAY_CHANNEL or device.profile is not FirmwareProfile.NATIVE:
            return False
        if device.device_no not in self.awaited_hellos:
            return False
        if lost is not None:
            self._awaiting_hello[device.device_no] = lost
        return True

    def _add_sent(self, execution: Execution, now_ms: int) -> None:
        self.sent += 1
        self._add_transition(execution, ExecutionStatus.SENT, now_ms, None)

    def _add_transition(self, execution: Execution, status: ExecutionStatus, at_ms: int, result: Json) -> None:
        after = replace(
            execution,
            status=status,
            sent_ms=at_ms if status is ExecutionStatus.SENT else execution.sent_ms,
            finished_ms=at_ms if status.is_final else None,
            result=result,
        )
        self._sent_not_recorded.append((after, execution.status))

    def _remember_sent(self, execution: Execution) -> None:
        self.dispatch_queue.discard(execution.execution_id)
        self._recently_sent[execution.execution_id] = None
        while len(self._recently_sent) > MAX_RECENTLY_SENT:
            del self._recently_sent[next(iter(self._recently_sent))]

    async def _send(self, device: Device, execution: Execution, now_ms: int) -> PublishResult | None:
        """None when the device's firmware cannot express the command."""
        channel = device.channel(execution.channel)
        if channel is None or not takes_channel(device, execution.channel):
            return None
        command = OutboundCommand(
            execution.execution_id,
            execution.cmd,
            execution.params,
            execution.expires_ms,
            channel.channel,
            channel.kind,
            channel.component,
        )
        messages = self.codec.encode_command(device.profile, device.device_id, command, now_ms)
        if not messages:
            return None
        for message in messages:
            result = await self.link.send(device.device_id, message)
            if not result and not message.is_optional:
                return result
        return PublishResult.SENT

    async def _record_sent(self) -> None:
        """Record the sent commands. Until this succeeds, nothing else is sent."""
        if not self._sent_not_recorded:
            return
        now_ms = self.deadlines.now_ms()
        async with self.uow.write(caller=None) as tx:
            await self._write_transitions(tx, self._sent_not_recorded, now_ms)
        self._sent_not_recorded = []

    async def _write_transitions(self, tx: CommandsTx, transitions: Sequence[ExecutionTransition], now_ms: int) -> None:
        """If a transition affects no row, the device's result was stored first and wins."""
        if not any(after.status.is_final for after, _ in transitions):
            await tx.executions.record_many(transitions)
            return
        stored = await tx.executions.transition_many(transitions)
        for execution in [after for after, _ in transitions if after.status.is_final and after.execution_id in stored]:
            tx.emit(command_result_event(execution, "service", now_ms))
            tx.after_commit(partial(self.execution_waiter.notify, execution))


@service
class CommandCrashRecovery:
    """What a process that ended may have done without recording it: a command is sent first, and recorded as sent afterwards."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock

    async def mark_possibly_sent(self) -> int:
        """Mark what is queued for devices that were online as possibly sent. Call it once, before this process sends anything.
        Returns how many; raises Unavailable."""
        async with self.uow.write(caller=None) as tx:
            return await tx.executions.mark_possibly_sent(self.clock.now_ms())


@service
class Subscriptions:
    """Which devices have subscribed to their commands, and whether the notification of that has been processed.

    A device receives commands from the moment it subscribes, but the notification arrives later, in order with its other
    messages. Only then are the commands resent that were lost with the earlier connection. Nothing may be sent in between: a new
    command would overtake them, and the relay would end in the wrong state."""

    link: OutboundDeviceMessagePort
    _ready: dict[int, CommandLossWindow] = field(default_factory=dict, init=False)
    """Device number → which of its commands may be lost; its backlog is still to be sent."""
    _deferred: dict[int, CommandLossWindow] = field(default_factory=dict, init=False)
    """The same for devices with a later subscription whose notification is still outstanding."""
    _reported_ms: dict[int, int] = field(default_factory=dict, init=False)
    """Device number → time of its last notified subscription."""
    _awaited_ms: dict[int, int] = field(default_factory=dict, init=False)
    """Device number → time of the subscription whose notification a command waits for."""
    _previously_awaited_ms: dict[int, int] = field(default_factory=dict, init=False)

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool, held_until_ms: int = 0) -> bool:
        """Record a notified subscription. True when a command waits for it."""
        self._reported_ms[device_no] = max(at_ms, self._reported_ms.get(device_no, 0))
        if to_commands:
            deferred = self._deferred.pop(device_no, None)
            window = CommandLossWindow.before(at_ms, held_until_ms)
            if held_until_ms:
                window = window.merge(deferred).merge(self._ready.get(device_no))
            self._ready[device_no] = window
        elif device_no in self._deferred:
            self._ready.setdefault(device_no, self._deferred.pop(device_no))
        return self._awaited_ms.pop(device_no, None) is not None

    def pop_ready(self, limit: int) -> dict[int, CommandLossWindow]:
        taken = dict(islice(self._ready.items(), limit))
        for device_no in taken:
            del self._ready[device_no]
        return taken

    def requeue(self, taken: dict[int, CommandLossWindow]) -> None:
        for device_no, window in taken.items():
            self._ready[device_no] = window.merge(self._ready.get(device_no))

    def __len__(self) -> int:
        return len(self._ready)

    def can_send(self, device: Device, window: CommandLossWindow | None) -> bool:
        """False while a subscription notification is outstanding; the device is served when it arrives. `window`: the
        device's value from `pop_ready`, if any."""
        if device.device_no in self._ready:
            return False
        last_ms = self.link.last_subscribed_ms(device.device_id)
        if last_ms <= self._reported_ms.get(device.device_no, 0):
            return True
        self._awaited_ms[device.device_no] = last_ms
        if window is not None:
            self._deferred[device.device_no] = window
        return False

    def expire_pending(self) -> None:
        """Call periodically: a notification that has not arrived since the last call is treated as lost."""
        for device_no, at_ms in self._previously_awaited_ms.items():
            if self._awaited_ms.get(device_no) == at_ms:
                self.on_subscribed(device_no, at_ms, to_commands=False)
        self._previously_awaited_ms = dict(self._awaited_ms)


@service
class DeadlineClock:
    """The clock that the deadlines of commands are meant in. A deadline is stored as wall time, as people and devices see it, but
    lasts by the monotonic clock: when the wall clock is set, the stored deadlines are moved along."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    absence: AbsenceTracker
    _extended_for: Absence | None = field(default=None, init=False)
    """The absence whose grace the commands that were sent before it have got."""
    _steps: ClockStepDetector | None = field(default=None, init=False)
    _pending_step_ms: int = field(default=0, init=False)
    """By how much the stored deadlines are still to be moved."""

    def now_ms(self) -> int:
        """The time that the stored deadlines are meant in since `follow`."""
        return self.clock.now_ms() if self._steps is None else self._steps.now_ms()

    async def follow(self) -> bool:
        """Move the stored deadlines along when the wall clock has been set; True if that was so. At the first call, no deadline
        stays further away than its command's whole time, in case the clock was ahead before the start. Raises Unavailable."""
        if self._steps is None:
            steps = ClockStepDetector(self.clock)
            await self._shift(0, steps.now_ms(), 0)
            self._steps = steps
        if self.absence.is_cut_off or self.absence.current is not self._extended_for:
            return await self._allow_answers()
        self._pending_step_ms += self._steps.take_ms()
        if self._pending_step_ms == 0:
            return False
        now_ms = self._steps.now_ms()
        await self._shift(self._pending_step_ms, now_ms, now_ms - MAX_UNNOTICED_MS)
        self._pending_step_ms = 0
        return True

    async def _allow_answers(self) -> bool:
        """What was sent before an absence may have been answered to nobody: the device has until its grace is over. While devices
        cannot be heard, nothing that was sent times out."""
        absence = self.absence.current
        async with self.uow.write(caller=None) as tx:
            extended = await tx.executions.extend_sent(self.now_ms() + self.absence.grace_left_ms)
        self._extended_for = absence
        return extended > 0

    async def _shift(self, step_ms: int, now_ms: int, unshifted_from_ms: int) -> None:
        async with self.uow.write(caller=None) as tx:
            await tx.executions.shift_expiry(step_ms, now_ms, unshifted_from_ms)


def group_by_device(commands: Sequence[DispatchEntry]) -> dict[DeviceId, QueuedForDevice]:
    by_device: dict[DeviceId, QueuedForDevice] = {}
    for command in commands:
        _, executions = by_device.setdefault(command.device.device_id, (command.device, {}))
        executions[command.execution.execution_id] = command.execution
    return by_device


def append_queued(stored: Sequence[Execution], queued: QueuedForDevice | None) -> Sequence[Execution]:
    """`stored` plus the commands that were queued after it was read."""
    known = {execution.execution_id for execution in stored}
    later = [] if queued is None else [one for key, one in queued[1].items() if key not in known]
    return [*stored, *later]


def can_be_lost(device: Device, execution: Execution, window: CommandLossWindow | None) -> bool:
    """Whether a command that was sent, or may have been (QUEUED with `sent_ms`), is to be sent again: it may be lost, and running
    it twice does no harm."""
    sent_ms = execution.sent_ms or 0
    is_lost = execution.status is ExecutionStatus.QUEUED or (window is not None and window.from_ms <= sent_ms < window.until_ms)
    return is_lost and can_resend(device.profile, execution.cmd)
