"""From the outbox to the device: QUEUED → SENT when handed to a live connection, in each device's own order.

The row is the outbox. It is handed over first and marked afterwards, so that a crash in between hands it over once more, with the
same id, which our firmware knows and does not run twice. A device that is not there is left behind and costs nothing until it
says that it listens; then it gets all that is still open, oldest first. Nobody but the one loop that drives this sends commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice

from domain.commands import policy
from domain.commands.model import Execution, ExecutionStatus
from domain.commands.ports import CommandsTx, Outcomes
from domain.commands.reports import ended
from domain.devices.codec import DeviceCodec, Order
from domain.devices.link import DeviceLink
from domain.devices.model import Device
from domain.kernel.clock import Clock
from domain.kernel.facts import Json
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork

PAGE = 200
READY_AT_ONCE = 50


@dataclass(slots=True)
class _Round:
    """What one round has done and must now write down."""

    moves: list[tuple[Execution, ExecutionStatus]] = field(default_factory=list)
    """(execution after, status before), in the order they came about."""

    def moved(self, execution: Execution, status: ExecutionStatus, at_ms: int, result: Json = None) -> Execution:
        after = replace(
            execution,
            status=status,
            sent_ms=at_ms if status is ExecutionStatus.SENT else execution.sent_ms,
            finished_ms=at_ms if status.is_final else None,
            result=result,
        )
        self.moves.append((after, execution.status))
        return after


class DispatchService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[CommandsTx],
        clock: Clock,
        link: DeviceLink,
        codec: DeviceCodec,
        outcomes: Outcomes,
        bell: Callable[[], None],
    ) -> None:
        """`bell` wakes whoever calls `send_queued`."""
        self._uow = uow
        self._clock = clock
        self._link = link
        self._codec = codec
        self._outcomes = outcomes
        self._bell = bell
        self._ready: dict[int, int] = {}
        """Device number → since when (Unix ms) it hears its commands."""
        self._behind: set[DeviceId] = set()
        """Devices with something in QUEUED that could not be handed over."""
        self._examined = 0
        """Every QUEUED execution up to this `seq` has been handed over, or its device is behind."""
        self.sent = 0
        self.resent = 0

    def on_device_ready(self, device_no: int, since_ms: int) -> None:
        """The device now hears its commands."""
        self._ready[device_no] = since_ms
        self._bell()

    def look_again(self) -> None:
        """Examine the whole queue anew: for what another instance queued, and for a connection nobody told us of."""
        self._examined = 0

    async def send_queued(self) -> bool:
        """One bounded round. True when there is more to do at once."""
        ready = dict(islice(self._ready.items(), READY_AT_ONCE))
        for device_no in ready:
            del self._ready[device_no]
        try:
            more = await self._round(ready)
        except BaseException:
            self._ready = ready | self._ready
            self._examined = 0
            raise
        return more or bool(self._ready)

    async def expire(self) -> bool:
        """End one batch of what is past its deadline. True when there may be more."""
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            overdue = await tx.executions.overdue(now_ms, PAGE)
            for execution in overdue:
                never_had = execution.status is ExecutionStatus.QUEUED
                status = ExecutionStatus.EXPIRED if never_had else ExecutionStatus.TIMED_OUT
                code = "NOT_DELIVERED" if never_had else "NO_ANSWER"
                done = replace(execution, status=status, finished_ms=now_ms, result=_said(code))
                await self._write(tx, done, execution.status, now_ms)
        return len(overdue) == PAGE

    async def next_expiry_ms(self) -> int | None:
        async with self._uow.read() as tx:
            return await tx.executions.next_expiry_ms()

    async def _round(self, ready: Mapping[int, int]) -> bool:
        done = _Round()
        async with self._uow.read() as tx:
            returned = [(no, await tx.devices.by_no(no)) for no in ready]
            open_ = [(device, await tx.executions.open_of(device.device_id)) for _, device in returned if device]
            page = await tx.executions.queued(PAGE, self._examined)
            fresh = await self._reachable(tx, page, {device.device_id for device, _ in open_})
        for device, executions in open_:
            self._behind.discard(device.device_id)
            await self._serve(device, executions, done, since_ms=ready[device.device_no])
        for device, executions in fresh:
            await self._serve(device, executions, done, since_ms=None)
        await self._settle(done)
        if page:
            self._examined = max(self._examined, page[-1].seq)
        return len(page) == PAGE

    async def _reachable(
        self, tx: CommandsTx, page: Sequence[Execution], served: set[DeviceId]
    ) -> list[tuple[Device, Sequence[Execution]]]:
        """The page by device, without those that are not there. One that was behind gets its whole queue, to keep its order."""
        by_device = sorted(page, key=lambda one: (one.device_id, one.seq))
        found: list[tuple[Device, Sequence[Execution]]] = []
        for device_id, group in groupby(by_device, key=lambda one: one.device_id):
            if device_id in served:
                continue
            if not self._link.connected(device_id):
                self._behind.add(device_id)
                continue
            executions: Sequence[Execution] = list(group)
            if device_id in self._behind:
                self._behind.discard(device_id)
                executions = await tx.executions.open_of(device_id)
            device = await tx.devices.find(device_id)
            if device is not None:
                found.append((device, executions))
        return found

    async def _serve(
        self, device: Device, executions: Sequence[Execution], done: _Round, *, since_ms: int | None
    ) -> None:
        """Hand over in order, and stop at the first that nobody hears. What was sent before `since_ms`, when the device began to
        listen, may have been lost with an earlier connection and goes again; what was sent after it was heard."""
        now_ms = self._clock.now_ms()
        for execution in executions:
            was_sent = execution.status is ExecutionStatus.SENT
            if was_sent and not _may_be_lost(device, execution, since_ms):
                continue
            if execution.expires_ms <= now_ms or not device.enabled:
                continue
            heard = await self._hand_over(device, execution, now_ms)
            if heard is False:
                self._behind.add(device.device_id)
                return
            if heard is None:
                done.moved(execution, ExecutionStatus.FAILED, now_ms, _said("UNSUPPORTED"))
            elif was_sent:
                self.resent += 1
            else:
                self._sent(device, execution, done, now_ms)

    def _sent(self, device: Device, execution: Execution, done: _Round, now_ms: int) -> None:
        self.sent += 1
        after = done.moved(execution, ExecutionStatus.SENT, now_ms)
        if policy.ends_when_handed_over(device, execution.cmd):
            done.moved(after, ExecutionStatus.DONE, now_ms, _said("STATE_MATCH"))

    async def _hand_over(self, device: Device, execution: Execution, now_ms: int) -> bool | None:
        """None when this firmware has no words for the command."""
        order = Order(execution.execution_id, execution.cmd, execution.params, execution.expires_ms)
        messages = self._codec.encode(device.profile, device.device_id, order, now_ms)
        if not messages:
            return None
        for message in messages:
            heard = await self._link.send(
                device.device_id,
                message.topic,
                message.payload,
                retain=message.retain,
                expiry_s=message.expiry_s,
                qos=message.qos,
            )
            if not heard:
                return False
        return True

    async def _settle(self, done: _Round) -> None:
        if not done.moves:
            return
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            for after, before in done.moves:
                await self._write(tx, after, before, now_ms)

    async def _write(self, tx: CommandsTx, after: Execution, before: ExecutionStatus, now_ms: int) -> None:
        """False moves are lost moves: the device's answer was quicker than we, and it counts."""
        if await tx.executions.advance(after, before) and after.status.is_final:
            await tx.record(ended(after, "service", now_ms))
            tx.after_commit(lambda: self._outcomes.announce(after))


def _may_be_lost(device: Device, execution: Execution, since_ms: int | None) -> bool:
    before = since_ms is not None and (execution.sent_ms or 0) < since_ms
    return before and policy.may_resend(device.profile, execution.cmd)


def _said(code: str) -> Json:
    return {"code": code, "relay": None, "data": None}
