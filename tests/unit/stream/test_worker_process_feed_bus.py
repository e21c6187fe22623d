"""Messages between worker processes arrive as they were, in order; a worker that is away or replaced does no harm."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.stream.unix_bus import MAX_UNSENT_BYTES, UnixSocketFeedBus
from domain.events.feed_model import FeedFilter
from domain.events.model import TELEMETRY, Event
from domain.feed.interest import PeerFeedInterestMessage, PeerFeedReadingsMessage
from domain.kernel.ids import AccountId, DeviceId, EventId
from support.waiting import TIMEOUT_S

PUMP = DeviceId("dev_1")
PAYLOAD: dict[str, Any] = {"type": TELEMETRY, "metric": "t", "value": 21.5, "valueText": None}
READING = Event(0, EventId("evt_1"), AccountId("acc_1"), PUMP, "Pump ü", TELEMETRY, "", 5, "device", "", PAYLOAD)
INTEREST = PeerFeedInterestMessage(3, [FeedFilter(AccountId("acc_1"), frozenset({TELEMETRY}), PUMP)])
Received = list[tuple[str, PeerFeedReadingsMessage | PeerFeedInterestMessage]]


@asynccontextmanager
async def open_bus(folder: Path, number: int, name: str) -> AsyncIterator[tuple[UnixSocketFeedBus, Received]]:
    bus, received = UnixSocketFeedBus(folder, number, 3, name), Received()
    await bus.on_readings(lambda sender, readings: received.append((sender, readings)))
    await bus.on_interest(lambda sender, interest: received.append((sender, interest)))
    await bus.open()
    try:
        yield bus, received
    finally:
        await bus.close()


@asynccontextmanager
async def buses(*names: str) -> AsyncIterator[list[tuple[UnixSocketFeedBus, Received]]]:
    """Of the workers 1, 2, …; a short folder, because the path of a socket may have 107 characters only."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bus-")))
        yield [await stack.enter_async_context(open_bus(folder, number, name)) for number, name in enumerate(names, 1)]


async def until_sent(bus: UnixSocketFeedBus, received: Received, count: int = 1) -> None:
    """Announce the interest until so many messages have arrived: the first ones open the connections."""
    async with asyncio.timeout(TIMEOUT_S):
        while len(received) < count:
            await bus.announce_interest(INTEREST)
            await asyncio.sleep(0.01)


async def test_messages_arrive_at_all_others_as_they_were_and_in_order() -> None:
    async with buses("a", "b", "c") as [(a, at_a), (_, at_b), (_, at_c)]:
        for received in (at_b, at_c):
            await until_sent(a, received)
        sent = [PeerFeedReadingsMessage(number, 1_800_000_000, [READING] * number, {"b": 3}) for number in range(1, 40)]
        for readings in sent:
            await a.announce_readings(readings)
        for received in (at_b, at_c):
            async with asyncio.timeout(TIMEOUT_S):
                while ("a", sent[-1]) not in received:
                    await asyncio.sleep(0.01)
            assert received[0] == ("a", INTEREST)
            assert [one for one in received if isinstance(one[1], PeerFeedReadingsMessage)] == [("a", one) for one in sent]
        assert at_a == []


async def test_a_replaced_worker_is_found_again() -> None:
    async with buses("a") as [(a, _)]:
        folder = a._folder
        for name in ("first", "second"):
            async with open_bus(folder, 2, name) as (b, at_b):
                await until_sent(a, at_b)
                received = Received()
                await a.on_interest(lambda sender, interest, received=received: received.append((sender, interest)))
                await until_sent(b, received)
                assert received[0] == (name, INTEREST)


async def test_a_worker_that_does_not_read_takes_bounded_memory() -> None:
    async with buses("a", "b") as [(a, _), (b, at_b)]:
        await until_sent(a, at_b)
        stuck = asyncio.Event()
        await b.on_readings(lambda *_: stuck.wait())
        many = PeerFeedReadingsMessage(1, 0, [READING] * 500)
        for _ in range(200):
            await a.announce_readings(many)
            await asyncio.sleep(0)
        assert a._writers[2].transport.get_write_buffer_size() < 2 * MAX_UNSENT_BYTES
        stuck.set()


async def test_a_stranger_that_sends_nonsense_is_disconnected_and_the_others_go_on() -> None:
    async with buses("a", "b") as [(a, _), (b, at_b)]:
        reader, writer = await asyncio.open_unix_connection(b._path(2))
        writer.write(b"\x00\x00\x00\x01nx" + b"\xff\xff\xff\xffr")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        await until_sent(a, at_b)
        assert at_b[0] == ("a", INTEREST)
