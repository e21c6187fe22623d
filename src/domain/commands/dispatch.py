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

from domain.commands import policy
from domain.commands.listening import Listening
from domain.commands.model import Execution, ExecutionStatus
from domain.commands.offers import Offer, Offered, Offers, and_later, by_device
from domain.commands.ports import CommandsTx, Move, Outcomes
from domain.commands.reports import ended, expired, said
from domain.devices.codec import DeviceCodec, Order
from domain.devices.link import DeviceLink
from domain.devices.model import Device
from domain.kernel.clock import Clock
from domain.kernel.facts import Json
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import UnitOfWork

PAGE = 200
READY_AT_ONCE = 50
REMEMBERED = 5 * PAGE
"""Ids handed over last. An offer may come after the look through the queue that has found the same command already."""

Work = tuple[Device, Sequence[Execution], int | None]
"""A device, what it is to get, and since when (Unix ms) it listens, where that is news."""


class DispatchService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[CommandsTx],
        clock: Clock,
        link: DeviceLink,
        codec: DeviceCodec,
        outcomes: Outcomes,
        offers: Offers,
        bell: Callable[[], None],
    ) -> None:
        """`bell` wakes whoever calls `send_queued`."""
        self._uow = uow
        self._clock = clock
        self._link = link
        self._codec = codec
        self._outcomes = outcomes
        self._offers = offers
        self._bell = bell
        self._listening = Listening(link)
        self._behind: set[DeviceId] = set()
        """Devices with something in QUEUED that could not be handed over."""
        self._looking_after: int | None = 0
        """The queue is being looked through; done up to this `seq`."""
        self._unmarked: list[Move] = []
        """Handed over, and not yet stored as such, in this order."""
        self._recent: dict[ExecutionId, None] = {}
        self._expiry_ms: int | None = None
        """No deadline is earlier; None: not known."""
        self.sent = 0
        self.resent = 0

    def on_device_ready(self, device_no: int, since_ms: int) -> None:
        """The device now hears its commands."""
        self.on_subscribed(device_no, since_ms, to_commands=True)

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool = False) -> None:
        if self._listening.subscribed(device_no, at_ms, to_commands=to_commands):
            self.look_again()
        elif not to_commands:
            return
        self._bell()

    def look_again(self) -> None:
        """Look through the whole queue: for what another instance queued, and for a connection nobody told us of."""
        self._looking_after = 0
        self._expiry_ms = None

    def look_after_all(self) -> None:
        """Now and then: `look_again`, and wait no longer for what should have come long ago."""
        self._listening.give_in()
        self.look_again()

    async def send_queued(self) -> bool:
        """One bounded round. True when there is more to do at once."""
        await self._mark()
        ready = self._listening.take(READY_AT_ONCE)
        try:
            more = await self._round(ready)
        except BaseException:
            self._listening.put_back(ready)
            self.look_again()
            raise
        return more or len(self._listening) > 0 or len(self._offers) > 0

    async def expire(self) -> bool:
        """End one batch of what is past its deadline. True when there may be more."""
        now_ms = self._clock.now_ms()
        self._expiry_ms = None
        async with self._uow.write() as tx:
            overdue = await tx.executions.overdue(now_ms, PAGE)
            await self._write(tx, [expired(execution, now_ms) for execution in overdue], now_ms)
        return len(overdue) == PAGE

    async def next_expiry_ms(self) -> int | None:
        """Not later than the next deadline. Asked of the database once: each new command says its own, and one that has ended
        meanwhile costs no more than a look."""
        if self._expiry_ms is None:
            async with self._uow.read() as tx:
                found = await tx.executions.next_expiry_ms()
            self._expiry_ms = found
        return self._expiry_ms

    async def _round(self, ready: Mapping[int, int]) -> bool:
        if self._offers.dropped:
            self._offers.dropped = False
            self._looking_after = self._looking_after or 0
        if ready or self._looking_after is not None:
            work = await self._looked_up(ready)
        else:
            offers = self._offered()
            if any(self._has_caught_up(offer.device.device_id) for offer in offers):
                async with self._uow.read() as tx:
                    work = await self._reachable(tx, by_device(offers))
            else:
                work = await self._reachable(None, by_device(offers))
        for device, executions, since_ms in work:
            await self._serve(device, executions, since_ms)
        await self._mark()
        return self._looking_after is not None

    async def _looked_up(self, ready: Mapping[int, int]) -> Sequence[Work]:
        """What waits for devices that have come, and the next page of the queue, where it is being looked through. What is
        offered meanwhile must not overtake what is on a later page, nor wait for a long queue: its device gets all of its own."""
        work: list[Work] = []
        offers: Sequence[Offer] = ()
        after: int | None = None
        async with self._uow.read() as tx:
            if ready:
                come = {device.device_no: device for device in await tx.devices.numbered(ready)}
                waiting = await tx.executions.open_of_all({device.device_id for device in come.values()})
                listening = [(come[number], since_ms) for number, since_ms in ready.items() if number in come]
                work = [(device, waiting.get(device.device_id, ()), since_ms) for device, since_ms in listening]
            if self._looking_after is not None:
                page = await tx.executions.queued(PAGE, self._looking_after)
                offers = await _as_offers(tx, page)
                after = page[-1].seq if len(page) == PAGE else None
            fresh = self._offered()
            if after is not None:
                self._behind.update(offer.device.device_id for offer in fresh)
            offers = [*offers, *fresh]
            offered = by_device(offers)
            work = [(device, and_later(open_, offered.pop(device.device_id, None)), since) for device, open_, since in work]
            work += await self._reachable(tx, offered)
        self._looking_after = after
        return work

    def _offered(self) -> Sequence[Offer]:
        offers = [one for one in self._offers.take(PAGE) if one.execution.execution_id not in self._recent]
        if self._expiry_ms is not None:
            self._expiry_ms = min([self._expiry_ms, *(offer.execution.expires_ms for offer in offers)])
        return offers

    def _has_caught_up(self, device_id: DeviceId) -> bool:
        return device_id in self._behind and self._link.connected(device_id)

    async def _reachable(self, tx: CommandsTx | None, offered: Mapping[DeviceId, Offered]) -> Sequence[Work]:
        """What is offered, without devices that are not there. One that was behind gets its whole queue, to keep its order."""
        work: list[Work] = []
        for device_id, (device, executions) in offered.items():
            if not self._link.connected(device_id):
                self._behind.add(device_id)
            elif tx is not None and device_id in self._behind:
                work.append((device, and_later(await tx.executions.open_of(device_id), (device, executions)), None))
            elif device_id not in self._behind:
                work.append((device, list(executions.values()), None))
            else:  # it has come back since we asked: next time, with all that waits for it
                self.look_again()
        return work

    async def _serve(self, device: Device, executions: Sequence[Execution], since_ms: int | None) -> None:
        """Hand over in order, and stop at the first that nobody hears. What was sent before `since_ms`, when the device began to
        listen, may have been lost with an earlier connection and goes again; what was sent after it was heard."""
        self._behind.discard(device.device_id)
        now_ms = self._clock.now_ms()
        for execution in executions:
            was_sent = execution.status is ExecutionStatus.SENT
            if was_sent and not _may_be_lost(device, execution, since_ms):
                continue
            if execution.expires_ms <= now_ms or not device.enabled:
                continue
            if not self._listening.may_be_sent(device, since_ms):
                self._behind.add(device.device_id)
                return
            heard = await self._hand_over(device, execution, now_ms)
            if heard is False:
                self._behind.add(device.device_id)
                return
            self._remember(execution)
            if heard is None:
                self._move(execution, ExecutionStatus.FAILED, now_ms, said("UNSUPPORTED"))
            elif was_sent:
                self.resent += 1
            else:
                self._sent(device, execution, now_ms)

    def _sent(self, device: Device, execution: Execution, now_ms: int) -> None:
        self.sent += 1
        ends = policy.ends_when_handed_over(device, execution.cmd)
        if ends:
            after = replace(execution, sent_ms=now_ms)
            self._move(after, ExecutionStatus.DONE, now_ms, said("STATE_MATCH"))
        else:
            self._move(execution, ExecutionStatus.SENT, now_ms, None)

    def _move(self, execution: Execution, status: ExecutionStatus, at_ms: int, result: Json) -> None:
        after = replace(
            execution,
            status=status,
            sent_ms=at_ms if status is ExecutionStatus.SENT else execution.sent_ms,
            finished_ms=at_ms if status.is_final else None,
            result=result,
        )
        self._unmarked.append((after, execution.status))

    def _remember(self, execution: Execution) -> None:
        self._offers.drop(execution.execution_id)
        self._recent[execution.execution_id] = None
        while len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]

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

    async def _mark(self) -> None:
        """Store what was handed over. Until that has succeeded nothing else is sent, and nothing is forgotten."""
        if not self._unmarked:
            return
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            await self._write(tx, self._unmarked, now_ms)
        self._unmarked = []

    async def _write(self, tx: CommandsTx, moves: Sequence[Move], now_ms: int) -> None:
        """A move that is lost is lost to the device's own answer: it was quicker than we, and it counts."""
        moved = await tx.executions.advance_all(moves)
        final = [after for after, _ in moves if after.status.is_final and after.execution_id in moved]
        for execution in final:
            await tx.record(ended(execution, "service", now_ms))

        def announce() -> None:
            for execution in final:
                self._outcomes.announce(execution)

        if final:
            tx.after_commit(announce)


async def _as_offers(tx: CommandsTx, page: Sequence[Execution]) -> Sequence[Offer]:
    found = await tx.devices.find_all({execution.device_id for execution in page})
    devices = {device.device_id: device for device in found}
    return [Offer(devices[one.device_id], one) for one in page if one.device_id in devices]


def _may_be_lost(device: Device, execution: Execution, since_ms: int | None) -> bool:
    before = since_ms is not None and (execution.sent_ms or 0) < since_ms
    return before and policy.may_resend(device.profile, execution.cmd)
