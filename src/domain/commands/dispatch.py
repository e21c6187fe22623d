"""From the outbox to the device: QUEUED → SENT when handed to a live connection, in each device's own order.

The row is the outbox. It is handed over first and marked afterwards, so that a crash in between hands it over once more, with the
same id, which our firmware knows and does not run twice. What has been handed over is kept until its mark is stored, so nothing
less than a crash does that. A device that is not there is left behind and costs nothing until it says that it listens; then it
gets all that is still open, oldest first. Nobody but the one loop that drives this sends commands.

What this process queues comes as an offer, with all that is needed to send it; the queue itself is looked through at the start,
when offers were dropped, and now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from domain.commands import policy
from domain.commands.device_reports import build_result, command_result_event, expire_execution
from domain.commands.dispatch_queue import DispatchQueue, QueuedCommand, QueuedForDevice, append_queued, group_by_device
from domain.commands.model import Execution, ExecutionStatus
from domain.commands.ports import ExecutionTransition, ExecutionWaiter, HasExecutions
from domain.commands.subscription_state import CommandSubscriptions
from domain.devices.codec import DeviceCodec, DeviceCommand
from domain.devices.link import DeviceLink
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.clock import Clock
from domain.kernel.domain_events import Json
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import Transaction, UnitOfWork

PAGE_SIZE = 200
MAX_READY_PER_ROUND = 50
MAX_RECENTLY_SENT = 5 * PAGE_SIZE
"""Ids handed over last. An offer may come after the look through the queue that has found the same command already."""

DispatchItem = tuple[Device, Sequence[Execution], int | None]
"""A device, what it is to get, and since when (Unix ms) it listens, where that is news."""


class DispatchTx(Transaction, HasDevices, HasExecutions, Protocol): ...


class CommandDispatchService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[DispatchTx],
        clock: Clock,
        link: DeviceLink,
        codec: DeviceCodec,
        execution_waiter: ExecutionWaiter,
        dispatch_queue: DispatchQueue,
        wake: Callable[[], None],
    ) -> None:
        """`bell` wakes whoever calls `send_queued`."""
        self._uow = uow
        self._clock = clock
        self._link = link
        self._codec = codec
        self._execution_waiter = execution_waiter
        self._dispatch_queue = dispatch_queue
        self._wake = wake
        self._subscriptions = CommandSubscriptions(link)
        self._needs_backlog: set[DeviceId] = set()
        """Devices with something in QUEUED that could not be handed over."""
        self._rescan_after_seq: int | None = 0
        """The queue is being looked through; done up to this `seq`."""
        self._sent_not_recorded: list[ExecutionTransition] = []
        """Handed over, and not yet stored as such, in this order."""
        self._recently_sent: dict[ExecutionId, None] = {}
        self._next_expiry_ms: int | None = None
        """No deadline is earlier; None: not known."""
        self.sent = 0
        self.resent = 0

    def on_device_ready(self, device_no: int, since_ms: int) -> None:
        """The device now hears its commands."""
        self.on_subscribed(device_no, since_ms, to_commands=True)

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool = False) -> None:
        if self._subscriptions.on_subscribed(device_no, at_ms, to_commands=to_commands):
            self.rescan()
        elif not to_commands:
            return
        self._wake()

    def rescan(self) -> None:
        """Look through the whole queue: for what another instance queued, and for a connection nobody told us of."""
        self._rescan_after_seq = 0
        self._next_expiry_ms = None

    def rescan_and_reset(self) -> None:
        """Now and then: `look_again`, and wait no longer for what should have come long ago."""
        self._subscriptions.expire_pending()
        self.rescan()

    async def send_queued(self) -> bool:
        """One bounded round. True when there is more to do at once."""
        await self._record_sent()
        ready = self._subscriptions.pop_ready(MAX_READY_PER_ROUND)
        try:
            more = await self._dispatch_round(ready)
        except BaseException:
            self._subscriptions.requeue(ready)
            self.rescan()
            raise
        return more or len(self._subscriptions) > 0 or len(self._dispatch_queue) > 0

    async def expire_batch(self) -> bool:
        """End one batch of what is past its deadline. True when there may be more."""
        now_ms = self._clock.now_ms()
        self._next_expiry_ms = None
        async with self._uow.write() as tx:
            overdue = await tx.executions.list_expired(now_ms, PAGE_SIZE)
            await self._write_transitions(tx, [expire_execution(execution, now_ms) for execution in overdue], now_ms)
        return len(overdue) == PAGE_SIZE

    async def next_expiry_ms(self) -> int | None:
        """Not later than the next deadline. Asked of the database once: each new command says its own, and one that has ended
        meanwhile costs no more than a look."""
        if self._next_expiry_ms is None:
            async with self._uow.read() as tx:
                found = await tx.executions.next_expiry_ms()
            self._next_expiry_ms = found
        return self._next_expiry_ms

    async def _dispatch_round(self, ready: Mapping[int, int]) -> bool:
        if self._dispatch_queue.has_overflowed:
            self._dispatch_queue.has_overflowed = False
            self._rescan_after_seq = self._rescan_after_seq or 0
        if ready or self._rescan_after_seq is not None:
            work = await self._load_backlog(ready)
        else:
            offers = self._pop_queued()
            if any(self._has_reconnected(offer.device.device_id) for offer in offers):
                async with self._uow.read() as tx:
                    work = await self._connected_only(tx, group_by_device(offers))
            else:
                work = await self._connected_only(None, group_by_device(offers))
        for device, executions, since_ms in work:
            await self._deliver(device, executions, since_ms)
        await self._record_sent()
        return self._rescan_after_seq is not None

    async def _load_backlog(self, ready: Mapping[int, int]) -> Sequence[DispatchItem]:
        """What waits for devices that have come, and the next page of the queue, where it is being looked through. What is
        offered meanwhile must not overtake what is on a later page, nor wait for a long queue: its device gets all of its own."""
        work: list[DispatchItem] = []
        offers: Sequence[QueuedCommand] = ()
        after: int | None = None
        async with self._uow.read() as tx:
            if ready:
                come = {device.device_no: device for device in await tx.devices.list_by_numbers(ready)}
                waiting = await tx.executions.list_open_by_devices({device.device_id for device in come.values()})
                listening = [(come[number], since_ms) for number, since_ms in ready.items() if number in come]
                work = [(device, waiting.get(device.device_id, ()), since_ms) for device, since_ms in listening]
            if self._rescan_after_seq is not None:
                page = await tx.executions.list_queued(PAGE_SIZE, self._rescan_after_seq)
                offers = await _as_queued_commands(tx, page)
                after = page[-1].seq if len(page) == PAGE_SIZE else None
            fresh = self._pop_queued()
            if after is not None:
                self._needs_backlog.update(offer.device.device_id for offer in fresh)
            offers = [*offers, *fresh]
            offered = group_by_device(offers)
            work = [(device, append_queued(open_, offered.pop(device.device_id, None)), since) for device, open_, since in work]
            work += await self._connected_only(tx, offered)
        self._rescan_after_seq = after
        return work

    def _pop_queued(self) -> Sequence[QueuedCommand]:
        offers = [
            one for one in self._dispatch_queue.pop_batch(PAGE_SIZE) if one.execution.execution_id not in self._recently_sent
        ]
        if self._next_expiry_ms is not None:
            self._next_expiry_ms = min([self._next_expiry_ms, *(offer.execution.expires_ms for offer in offers)])
        return offers

    def _has_reconnected(self, device_id: DeviceId) -> bool:
        return device_id in self._needs_backlog and self._link.is_connected(device_id)

    async def _connected_only(self, tx: DispatchTx | None, offered: Mapping[DeviceId, QueuedForDevice]) -> Sequence[DispatchItem]:
        """What is offered, without devices that are not there. One that was behind gets its whole queue, to keep its order."""
        work: list[DispatchItem] = []
        for device_id, (device, executions) in offered.items():
            if not self._link.is_connected(device_id):
                self._needs_backlog.add(device_id)
            elif tx is not None and device_id in self._needs_backlog:
                work.append(
                    (device, append_queued(await tx.executions.list_open_by_device(device_id), (device, executions)), None)
                )
            elif device_id not in self._needs_backlog:
                work.append((device, list(executions.values()), None))
            else:  # it has come back since we asked: next time, with all that waits for it
                self.rescan()
        return work

    async def _deliver(self, device: Device, executions: Sequence[Execution], since_ms: int | None) -> None:
        """Hand over in order, and stop at the first that nobody hears. What was sent before `since_ms`, when the device began to
        listen, may have been lost with an earlier connection and goes again; what was sent after it was heard."""
        self._needs_backlog.discard(device.device_id)
        now_ms = self._clock.now_ms()
        for execution in executions:
            was_sent = execution.status is ExecutionStatus.SENT
            if was_sent and not _can_be_lost(device, execution, since_ms):
                continue
            if execution.expires_ms <= now_ms or not device.is_active:
                continue
            if not self._subscriptions.can_send(device, since_ms):
                self._needs_backlog.add(device.device_id)
                return
            heard = await self._send(device, execution, now_ms)
            if heard is False:
                self._needs_backlog.add(device.device_id)
                return
            self._remember_sent(execution)
            if heard is None:
                self._add_transition(execution, ExecutionStatus.FAILED, now_ms, build_result("UNSUPPORTED"))
            elif was_sent:
                self.resent += 1
            else:
                self._add_sent(device, execution, now_ms)

    def _add_sent(self, device: Device, execution: Execution, now_ms: int) -> None:
        self.sent += 1
        ends = policy.is_done_when_sent(device, execution.cmd)
        if ends:
            after = replace(execution, sent_ms=now_ms)
            self._add_transition(after, ExecutionStatus.DONE, now_ms, build_result("STATE_MATCH"))
        else:
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
        self._dispatch_queue.discard(execution.execution_id)
        self._recently_sent[execution.execution_id] = None
        while len(self._recently_sent) > MAX_RECENTLY_SENT:
            del self._recently_sent[next(iter(self._recently_sent))]

    async def _send(self, device: Device, execution: Execution, now_ms: int) -> bool | None:
        """None when this firmware has no words for the command."""
        order = DeviceCommand(execution.execution_id, execution.cmd, execution.params, execution.expires_ms)
        messages = self._codec.encode_command(device.profile, device.device_id, order, now_ms)
        if not messages:
            return None
        for message in messages:
            if not await self._link.send(device.device_id, message):
                return False
        return True

    async def _record_sent(self) -> None:
        """Store what was handed over. Until that has succeeded nothing else is sent, and nothing is forgotten."""
        if not self._sent_not_recorded:
            return
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            await self._write_transitions(tx, self._sent_not_recorded, now_ms)
        self._sent_not_recorded = []

    async def _write_transitions(self, tx: DispatchTx, moves: Sequence[ExecutionTransition], now_ms: int) -> None:
        """A move that is lost is lost to the device's own answer: it was quicker than we, and it counts."""
        moved = await tx.executions.transition_many(moves)
        final = [after for after, _ in moves if after.status.is_final and after.execution_id in moved]
        for execution in final:
            await tx.emit(command_result_event(execution, "service", now_ms))

        def announce() -> None:
            for execution in final:
                self._execution_waiter.notify(execution)

        if final:
            tx.after_commit(announce)


async def _as_queued_commands(tx: DispatchTx, page: Sequence[Execution]) -> Sequence[QueuedCommand]:
    found = await tx.devices.list_by_ids({execution.device_id for execution in page})
    devices = {device.device_id: device for device in found}
    return [QueuedCommand(devices[one.device_id], one) for one in page if one.device_id in devices]


def _can_be_lost(device: Device, execution: Execution, since_ms: int | None) -> bool:
    before = since_ms is not None and (execution.sent_ms or 0) < since_ms
    return before and policy.can_resend(device.profile, execution.cmd)
