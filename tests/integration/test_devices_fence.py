"""A holder of the devices that stood still, or was cut off, while another took them over: what it writes late is not taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.postgres.leader_fence import Fence, FencedUnitOfWork, NotLeaderError
from adapters.storage.sql.postgres.notifications import PostgresListener
from domain.kernel.errors import Unavailable
from support import postgres
from support.storage import World, add_execution, an_execution, emptied, settled

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

PATIENCE = 15.0


@dataclass
class Instance:
    database: SqlDatabase
    herald: PostgresListener
    uow: FencedUnitOfWork

    async def orders(self, world: World) -> None:
        """What a rule that fires does: the command is queued."""
        async with self.uow.write() as tx:
            await add_execution(tx, an_execution(world))


@contextlib.asynccontextmanager
async def instance(url: str) -> AsyncIterator[Instance]:
    database, fence = SqlDatabase(url), Fence()
    await database.start()
    herald = PostgresListener(url, heard=lambda: None, holds_devices=True, fence=fence)
    try:
        yield Instance(database, herald, FencedUnitOfWork(database.unit_of_work(None), fence))
    finally:
        await herald.close()
        await database.stop()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Instance, Instance, World]]:
    url = await emptied()
    async with instance(url) as first, instance(url) as second:
        world = await settled(first.database.uow)
        await first.herald.open()
        yield first, second, world


async def cut_off(holder: Instance) -> None:
    """The server ends the connection that holds the claim, and the holder has not noticed yet."""
    connection = await asyncpg.connect(postgres.plain_url())
    await connection.execute("SELECT pg_terminate_backend($1)", holder.herald._fence.leader_pid)
    await connection.close()


async def commands(world: World) -> int:
    async with world.uow.read() as tx:
        return len(await tx.executions.list_queued(10, 0))


async def claimed(herald: PostgresListener) -> Any:
    waiting = asyncio.create_task(herald.run_until_lost())
    await asyncio.wait_for(herald.leadership_acquired.wait(), PATIENCE)
    return waiting


async def test_only_who_holds_the_devices_writes_for_them(pair: tuple[Instance, Instance, World]) -> None:
    first, second, world = pair
    await second.herald.open()
    await first.orders(world)
    with pytest.raises(NotLeaderError):
        await second.orders(world)
    assert await commands(world) == 1


async def test_what_a_holder_had_open_when_another_took_over_is_not_stored(pair: tuple[Instance, Instance, World]) -> None:
    first, second, world = pair
    with pytest.raises(Unavailable):
        async with first.uow.write() as tx:
            await add_execution(tx, an_execution(world))
            await cut_off(first)
            waiting = await claimed(second.herald)
            assert await commands(world) == 0
            await second.orders(world)
    assert await commands(world) == 1
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_what_a_holder_begins_after_another_took_over_is_refused(pair: tuple[Instance, Instance, World]) -> None:
    first, second, world = pair
    await cut_off(first)
    waiting = await claimed(second.herald)
    assert first.herald._fence.leader_pid is not None, "it has not noticed"
    with pytest.raises(NotLeaderError):
        await first.orders(world)
    await second.orders(world)
    assert await commands(world) == 1
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_who_takes_over_waits_for_a_commit_that_is_on_its_way(pair: tuple[Instance, Instance, World]) -> None:
    """It is stored before the new holder looks at what is stored."""
    first, second, world = pair
    async with first.uow.write() as tx:
        await add_execution(tx, an_execution(world))
        await cut_off(first)
        taking = asyncio.create_task(claimed(second.herald))
        await asyncio.sleep(0.3)
        assert not second.herald.leadership_acquired.is_set()
    waiting = await taking
    assert await commands(world) == 1
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_holder_that_claims_again_in_time_goes_on(pair: tuple[Instance, Instance, World]) -> None:
    first, _, world = pair
    await cut_off(first)
    await first.herald.open()
    await first.orders(world)
    assert await commands(world) == 1
