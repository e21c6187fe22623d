"""A leader that stalled, or lost its connection, while another instance took over: its late writes are rejected."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.postgres.leader_fence import NotLeaderError, PostgresLeaderFence
from adapters.storage.sql.postgres.leadership import DeviceLeaderLock, PostgresCoordinationConnection
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from domain.kernel.errors import Unavailable
from support import postgres
from support.empty_database import empty_postgres
from support.storage import StoredAccount, add_execution, an_execution, populate
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")


@dataclass
class Instance:
    database: SqlDatabase
    listener: PostgresCoordinationConnection
    uow: SqlUnitOfWork

    async def queue_command(self, world: StoredAccount) -> None:
        """As a firing rule does."""
        async with self.uow.write() as tx:
            await add_execution(tx, an_execution(world))


@contextlib.asynccontextmanager
async def instance(url: str) -> AsyncIterator[Instance]:
    database, fence = SqlDatabase(url), PostgresLeaderFence()
    await database.start()
    listener = PostgresCoordinationConnection(
        url, on_notify=lambda: None, process_id=secrets.token_bytes(16), leader_lock=DeviceLeaderLock(fence)
    )
    try:
        yield Instance(database, listener, database.unit_of_work(None).fenced_by(fence))
    finally:
        await listener.close()
        await database.stop()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Instance, Instance, StoredAccount]]:
    url = await empty_postgres()
    async with instance(url) as first, instance(url) as second:
        world = await populate(first.database.uow)
        await first.listener.open()
        yield first, second, world


async def cut_off(leader: Instance) -> None:
    """The server ends the connection that holds the lock; the leader has not noticed yet."""
    connection = await asyncpg.connect(postgres.plain_url())
    await connection.execute("SELECT pg_terminate_backend($1)", leader.listener.leader_lock._fence.leader_pid)
    await connection.close()


async def commands(world: StoredAccount) -> int:
    async with world.uow.read() as tx:
        return len(await tx.executions.list_queued(10, 0))


async def become_leader(listener: PostgresCoordinationConnection) -> Any:
    waiting = asyncio.create_task(listener.run_until_lost())
    await asyncio.wait_for(listener.leader_lock.acquired.wait(), TIMEOUT_S)
    return waiting


async def test_only_the_leader_writes_for_the_devices(pair: tuple[Instance, Instance, StoredAccount]) -> None:
    first, second, world = pair
    await second.listener.open()
    await first.queue_command(world)
    with pytest.raises(NotLeaderError):
        await second.queue_command(world)
    assert await commands(world) == 1


async def test_a_transaction_that_a_leader_had_open_at_a_takeover_is_not_stored(
    pair: tuple[Instance, Instance, StoredAccount],
) -> None:
    first, second, world = pair
    with pytest.raises(Unavailable):
        async with first.uow.write() as tx:
            await add_execution(tx, an_execution(world))
            await cut_off(first)
            waiting = await become_leader(second.listener)
            assert await commands(world) == 0
            await second.queue_command(world)
    assert await commands(world) == 1
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_transaction_that_an_old_leader_begins_after_a_takeover_is_rejected(
    pair: tuple[Instance, Instance, StoredAccount],
) -> None:
    first, second, world = pair
    await cut_off(first)
    waiting = await become_leader(second.listener)
    assert first.listener.leader_lock._fence.leader_pid is not None, "it has not noticed"
    with pytest.raises(NotLeaderError):
        await first.queue_command(world)
    await second.queue_command(world)
    assert await commands(world) == 1
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_new_leader_waits_for_a_running_commit_of_the_old_one(pair: tuple[Instance, Instance, StoredAccount]) -> None:
    """The commit is stored before the new leader reads."""
    first, second, world = pair
    async with first.uow.write() as tx:
        await add_execution(tx, an_execution(world))
        await cut_off(first)
        taking = asyncio.create_task(become_leader(second.listener))
        await asyncio.sleep(0.3)
        assert not second.listener.leader_lock.acquired.is_set()
    waiting = await taking
    assert await commands(world) == 1
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_leader_that_reconnects_in_time_stays_the_leader(pair: tuple[Instance, Instance, StoredAccount]) -> None:
    first, _, world = pair
    await cut_off(first)
    await first.listener.open()
    await first.queue_command(world)
    assert await commands(world) == 1
