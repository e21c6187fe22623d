"""Reads on SQLite never block the event loop, and all reads of a transaction see one snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from adapters.storage.sql.session import LOOK_UP
from adapters.storage.sql.sqlite.backend import SqliteBackend, SqliteReaderPool
from adapters.storage.sql.sqlite.connections import PipelinedSqliteConnection, SqliteLookUpConnection
from domain.kernel.errors import Unavailable
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S, until

COUNT = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n")
ONE = text("SELECT value FROM kept WHERE id = 1")
HELD = text("SELECT held()")
HELD_AFTER_COUNT = text(COUNT.text.replace("count(*)", "held(), count(*)"))
BUSY_S = 1.0
"""How long a read waits for a lock; the event loop has this long for a few turns."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "some.db"
    connection = sqlite3.connect(found)
    connection.executescript("PRAGMA journal_mode=WAL; CREATE TABLE kept (id INTEGER PRIMARY KEY, value INTEGER);")
    connection.executescript("INSERT INTO kept VALUES (1, 10);")
    connection.close()
    return found


@pytest.fixture
async def backend(path: Path) -> AsyncIterator[SqliteBackend]:
    made = SqliteBackend(path, readers=1, busy_timeout_ms=int(TIMEOUT_S * 1_000))
    await made.start()
    yield made
    await made.stop()


def change(path: Path, value: int) -> None:
    connection = sqlite3.connect(path, timeout=TIMEOUT_S)
    with connection:
        connection.execute("UPDATE kept SET value = ?", (value,))
    connection.close()


async def count_loop_turns(work: asyncio.Future[object]) -> int:
    """How often the event loop ran other tasks until `work` was done."""
    count = 0
    while not work.done():
        count += 1
        await asyncio.sleep(0.001)
    return count


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, a read of `held()` does not end. The function returns whether it was set in time."""
    event, execute = threading.Event(), PipelinedSqliteConnection.execute

    def prepare(self: PipelinedSqliteConnection, sql: str, *params: Any) -> sqlite3.Cursor:
        if "held()" in sql:
            self.create_function("held", 0, lambda: event.wait(OPERATION_TIMEOUT_S))
        return execute(self, sql, *params)

    monkeypatch.setattr(PipelinedSqliteConnection, "execute", prepare)
    return event


async def test_a_long_read_leaves_the_event_loop_free(backend: SqliteBackend, release: threading.Event) -> None:
    async with backend.read() as session:
        for _ in range(3):
            release.clear()
            working = asyncio.ensure_future(session.read(HELD))
            for _ in range(6):
                await asyncio.sleep(0.001)
            release.set()
            assert (await working)[0][0], "the event loop waited for the read"
        assert (await session.read(ONE))[0][0] == 10


async def test_all_reads_of_a_transaction_see_one_snapshot(backend: SqliteBackend, path: Path) -> None:
    async with backend.read() as session:
        assert (await session.read(ONE))[0][0] == 10
        await asyncio.to_thread(change, path, 11)
        await session.read(COUNT)
        assert (await session.read(ONE))[0][0] == 10
    async with backend.read() as session:
        assert (await session.read(ONE))[0][0] == 11


async def test_a_batch_with_one_long_read_returns_all_results(backend: SqliteBackend) -> None:
    async with backend.read() as session:
        for _ in range(3):
            long, short = await session.read_batch((COUNT, {}), (ONE, {}))
            assert (long[0][0], short[0][0]) == (1_000_000, 10)


async def test_a_cancelled_read_does_not_disturb_the_next_one(backend: SqliteBackend) -> None:
    for _ in range(5):
        async with backend.read() as session:
            working = asyncio.ensure_future(session.read(COUNT))
            await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.wait({working})
        async with backend.read() as session:
            assert (await session.read(ONE))[0][0] == 10


@contextlib.asynccontextmanager
async def borrowed(readers: SqliteReaderPool) -> AsyncIterator[SqliteLookUpConnection]:
    connection = await readers.acquire()
    try:
        yield connection
    finally:
        await readers.release(connection)


async def look_up(connection: SqliteLookUpConnection) -> Any:
    found = connection.try_look_up(str(ONE))
    return await connection.fetch(str(ONE)) if found is None else found


async def lock(holder: sqlite3.Connection) -> None:
    """As soon as the idle connections have ended their snapshots."""

    async def begin() -> bool:
        with contextlib.suppress(sqlite3.OperationalError):
            holder.execute("BEGIN EXCLUSIVE")
        return holder.in_transaction

    await until(begin, bool)


async def test_waiting_for_a_lock_leaves_the_event_loop_free(path: Path) -> None:
    """Without a write-ahead log a writer locks readers out, as a recovery does with one."""
    holder = sqlite3.connect(path, isolation_level=None, timeout=0)
    holder.execute("PRAGMA journal_mode=DELETE")
    readers = SqliteReaderPool(path, size=1, busy_timeout_ms=int(BUSY_S * 1_000))
    try:
        async with borrowed(readers) as connection:
            assert await connection.fetch(str(ONE)) == [(10,)]
        async with borrowed(readers) as connection:
            await connection.flush()
        await lock(holder)
        async with borrowed(readers) as connection:
            working = asyncio.ensure_future(connection.fetch(str(ONE)))
            assert await count_loop_turns(working) > 5
            with pytest.raises(Unavailable):
                await working
        holder.execute("ROLLBACK")
        async with borrowed(readers) as connection:
            assert await connection.fetch(str(ONE)) == [(10,)]
    finally:
        holder.close()
        await readers.close()


LOOK_UP_ONE = ONE.execution_options(**LOOK_UP)


async def test_a_look_up_needs_no_thread(backend: SqliteBackend) -> None:
    async with backend.read() as session:
        for _ in range(500):  # SQLite counts the steps of all uses of a statement
            looking_up = asyncio.ensure_future(session.read(LOOK_UP_ONE))
            assert await count_loop_turns(looking_up) <= 1
            assert looking_up.result() == [(10,)]


async def test_look_ups_and_reads_in_the_thread_see_one_snapshot(backend: SqliteBackend, path: Path) -> None:
    async with backend.read() as session:
        assert await session.read(LOOK_UP_ONE) == [(10,)]
        await asyncio.to_thread(change, path, 11)
        assert await session.read(ONE) == [(10,)]
        assert await session.read(LOOK_UP_ONE) == [(10,)]
    async with backend.read() as session:
        assert await session.read(LOOK_UP_ONE) == [(11,)]


async def test_a_look_up_that_takes_long_leaves_the_event_loop_free(backend: SqliteBackend, release: threading.Event) -> None:
    async with backend.read() as session:
        working = asyncio.ensure_future(session.read(HELD_AFTER_COUNT.execution_options(**LOOK_UP)))
        for _ in range(6):
            await asyncio.sleep(0.001)
        release.set()
        assert await working == [(True, 1_000_000)], "the event loop waited for the look-up"


async def test_a_look_up_waits_until_the_thread_has_finished_a_cancelled_read(
    backend: SqliteBackend, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[str] = []

    def look_up_at_once(self: SqliteLookUpConnection, sql: str, params: Any) -> Any:
        """Does not run it: beside the thread's statement it would hold the event loop until that ends."""
        at_once.append(sql)
        raise sqlite3.OperationalError

    async with backend.read() as session:
        working = asyncio.ensure_future(session.read(HELD))
        await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.wait({working})
    async with backend.read() as session:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLookUpConnection, "_look_up_at_once", look_up_at_once)
            looking_up = asyncio.ensure_future(session.read(LOOK_UP_ONE))
            await asyncio.sleep(0.01)
        assert (looking_up.done(), at_once) == (False, [])
        release.set()
        assert await looking_up == [(10,)]


async def test_a_look_up_that_meets_a_lock_waits_for_it_in_the_thread(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None, timeout=0)
    holder.execute("PRAGMA journal_mode=DELETE")
    readers = SqliteReaderPool(path, size=1, busy_timeout_ms=int(BUSY_S * 1_000))
    try:
        async with borrowed(readers) as connection:
            assert await look_up(connection) == [(10,)]
        async with borrowed(readers) as connection:
            await connection.flush()
        await lock(holder)
        async with borrowed(readers) as connection:
            working = asyncio.ensure_future(look_up(connection))
            assert await count_loop_turns(working) > 5
            with pytest.raises(Unavailable):
                await working
        holder.execute("ROLLBACK")
        async with borrowed(readers) as connection:
            assert await look_up(connection) == [(10,)]
    finally:
        holder.close()
        await readers.close()
