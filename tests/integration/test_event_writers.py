"""Writer numbers of the event log on PostgreSQL: transactions commit side by side, and readers wait for none of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.repositories.events import DEVICE_LOCKS, reserve_positions
from domain.events.cursors import MAX_WRITERS, EventLogCursor
from domain.events.model import Event
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId
from support import postgres
from support.empty_database import empty_postgres
from support.storage import StoredAccount, an_event, populate
from support.waiting import TIMEOUT_S

PUMP, FAN, HEATER = DeviceId("dev_pump"), DeviceId("dev_fan"), DeviceId("dev_heater")
pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")


@pytest.fixture
async def world() -> AsyncIterator[StoredAccount]:
    """In a database that gives more connections than there are writer numbers."""
    database = SqlDatabase(await empty_postgres(), pool_size=MAX_WRITERS + 4, acquire_timeout_s=TIMEOUT_S)
    await database.start()
    try:
        yield await populate(database.unit_of_work())
    finally:
        await database.stop()


class OpenTransaction:
    """A transaction that has written events and not ended. Without a device it keeps no other one waiting."""

    def __init__(self, world: StoredAccount, *devices: DeviceId) -> None:
        self._world = world
        self._devices = devices or (None,)
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written: asyncio.Future[tuple[Event, int]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._world.uow.write() as tx:
            [event, *_] = await tx.events.append_many([an_event(self._world, device_id=each) for each in self._devices])
            raw: Any = await tx.session._connection.get_raw_connection()
            self._written.set_result((event, raw.driver_connection.get_server_pid()))
            await self._end

    async def written(self) -> tuple[Event, int]:
        return await asyncio.wait_for(asyncio.shield(self._written), TIMEOUT_S)

    async def end(self) -> None:
        if not self._end.done():
            self._end.set_result(None)
        await asyncio.wait_for(self._task, TIMEOUT_S)


async def append(world: StoredAccount, device_id: DeviceId | None = None) -> Event:
    async with world.uow.write() as tx:
        [event] = await tx.events.append_many([an_event(world, device_id=device_id)])
    return event  # type: ignore[no-any-return]


async def unread(world: StoredAccount, after: EventLogCursor) -> list[Event]:
    async with world.uow.read() as tx:
        return list(await tx.events.list_after(after, 99))


async def test_readers_get_what_is_committed_while_an_earlier_transaction_is_open(world: StoredAccount) -> None:
    slow = OpenTransaction(world)
    late, _ = await slow.written()
    quick = [await append(world) for _ in range(2)]
    assert all(event.position > late.position for event in quick)
    found = await unread(world, EventLogCursor())
    assert found == quick
    async with world.uow.write() as tx:
        await tx.events.advance_idle_writers()
    async with world.uow.read() as tx:
        end = await tx.events.end()
    for cursor in (EventLogCursor().after(found), end):
        assert await unread(world, cursor) == []
    await slow.end()
    for cursor in (EventLogCursor().after(found), end):
        assert await unread(world, cursor) == [late]


async def test_events_of_one_device_appear_in_the_order_of_their_positions(world: StoredAccount) -> None:
    """Their transactions follow each other, and those of other devices do not wait."""
    slow = OpenTransaction(world, PUMP, FAN)
    first, _ = await slow.written()
    waiting = [asyncio.create_task(append(world, device)) for device in (PUMP, FAN)]
    other = await append(world, HEATER)
    await asyncio.wait(waiting, timeout=0.1)
    assert await unread(world, EventLogCursor()) == [other]
    assert not any(task.done() for task in waiting)
    await slow.end()
    async with asyncio.timeout(TIMEOUT_S):
        later = await asyncio.gather(*waiting)
    assert all(event.position > first.position for event in later)


async def test_transactions_of_the_same_devices_in_any_order_do_not_deadlock(world: StoredAccount) -> None:
    chance = random.Random(7)
    devices = [DeviceId(f"dev_{number}") for number in range(2 * DEVICE_LOCKS)]

    async def write() -> None:
        for _ in range(5):
            async with world.uow.write() as tx:
                await tx.events.append_many([an_event(world, device_id=each) for each in chance.sample(devices, 300)])

    async def follow() -> None:
        cursor, newest = EventLogCursor(), dict.fromkeys(devices, 0)
        while True:
            is_last = writing.done()
            for event in await unread(world, cursor):
                assert event.position > newest[event.device_id], "a client has seen a later one of this device"
                cursor, newest[event.device_id] = cursor.after([event]), event.position
            if is_last:
                return

    async def write_all() -> None:
        await asyncio.gather(*[write() for _ in range(6)])

    writing = asyncio.create_task(write_all())
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(writing, follow())


async def test_a_writer_that_is_killed_holds_nobody_up_and_its_number_is_used_again(world: StoredAccount) -> None:
    killed = OpenTransaction(world)
    lost, pid = await killed.written()
    before = await append(world)
    server = await asyncpg.connect(postgres.plain_url())
    await server.execute("SELECT pg_terminate_backend($1)", pid)
    await server.close()
    with contextlib.suppress(Unavailable):
        await killed.end()
    after = await append(world)
    assert (lost.writer, before.writer, after.writer) == (0, 1, 0)
    assert await unread(world, EventLogCursor()) == [before, after]


async def test_a_transaction_beyond_the_last_number_waits_for_one(world: StoredAccount) -> None:
    held = [OpenTransaction(world) for _ in range(MAX_WRITERS)]
    events = [(await one.written())[0] for one in held]
    assert sorted(event.writer for event in events) == list(range(MAX_WRITERS))
    waiting = asyncio.create_task(append(world))
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done()
    for one in held:
        await one.end()
    assert (await asyncio.wait_for(waiting, TIMEOUT_S)).position > max(event.position for event in events)
    assert len(await unread(world, EventLogCursor())) == MAX_WRITERS + 1


async def test_a_transaction_that_fails_gives_its_number_back_and_leaves_the_end_where_it_was(world: StoredAccount) -> None:
    last = await append(world)
    with pytest.raises(ZeroDivisionError):
        async with world.uow.write() as tx:
            await reserve_positions(tx.session, 3)
            raise ZeroDivisionError
    async with world.uow.read() as tx:
        assert (await tx.events.end()).highest == last.position
    assert (await append(world)).writer == 0


async def test_a_number_that_was_never_used_does_not_hide_the_first_event(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.events.advance_idle_writers()
    async with world.uow.read() as tx:
        end = await tx.events.end()
    first = await append(world)
    assert await unread(world, end) == [first]
