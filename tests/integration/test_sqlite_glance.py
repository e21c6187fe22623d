"""Small reads are answered on the spot; long ones and locked ones leave the loop free, and all of a transaction see one
snapshot."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from adapters.storage.sql.sqlite import inline_reads
from adapters.storage.sql.sqlite.backend import SqliteBackend
from adapters.storage.sql.sqlite.reader_pool import IDLE_SNAPSHOT_S, ReaderPool
from domain.kernel.errors import Unavailable

COUNT = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n")
ONE = text("SELECT value FROM kept WHERE id = 1")


@pytest.fixture(autouse=True)
def a_patient_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, no read counts as one that waited for a disk."""
    monkeypatch.setattr(inline_reads, "SLOW_READ_S", 1e9)


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
    made = SqliteBackend(path, readers=1, busy_ms=400)
    await made.start()
    yield made
    await made.stop()


def change(path: Path, value: int) -> None:
    connection = sqlite3.connect(path, timeout=5)
    with connection:
        connection.execute("UPDATE kept SET value = ?", (value,))
    connection.close()


async def ticks_while(work: asyncio.Future[object]) -> int:
    """How often the loop came round until `work` was done."""
    count = 0
    while not work.done():
        count += 1
        await asyncio.sleep(0.001)
    return count


async def test_a_small_read_is_answered_without_giving_the_loop_away(backend: SqliteBackend) -> None:
    async with backend.read() as session:
        await session.read(ONE)  # the lane is open now
    others: list[int] = []
    asyncio.get_running_loop().call_soon(others.append, 1)
    async with backend.read() as session:
        assert [tuple(row) for row in await session.read(ONE)] == [(10,)]
    assert others == []


async def test_after_a_page_was_slow_in_coming_reads_leave_the_loop_free_for_a_while(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backend.read() as session:
        await session.read(ONE)
    monkeypatch.setattr(inline_reads, "SLOW_READ_S", -1.0)  # every read took too long
    async with backend.read() as session:
        await session.read(ONE)
    others: list[int] = []
    asyncio.get_running_loop().call_soon(others.append, 1)
    async with backend.read() as session:
        assert (await session.read(ONE))[0][0] == 10
    assert others == [1]


async def test_a_long_read_leaves_the_loop_free_and_is_right(backend: SqliteBackend) -> None:
    async with backend.read() as session:
        for _ in range(3):
            working = asyncio.ensure_future(session.read(COUNT))
            assert await ticks_while(working) > 5
            assert working.result()[0][0] == 1_000_000
        assert (await session.read(ONE))[0][0] == 10


async def test_a_statement_is_answered_on_the_spot_however_often_it_ran(backend: SqliteBackend) -> None:
    for _ in range(5_000):
        async with backend.read() as session:
            assert (await session.read(ONE))[0][0] == 10
    assert backend._readers is not None
    assert backend._readers._slow_statements._remaining_calls == {}


async def test_short_and_long_reads_of_a_transaction_see_one_snapshot(backend: SqliteBackend, path: Path) -> None:
    async with backend.read() as session:
        assert (await session.read(ONE))[0][0] == 10
        await asyncio.to_thread(change, path, 11)
        await session.read(COUNT)
        assert (await session.read(ONE))[0][0] == 10
    async with backend.read() as session:
        assert (await session.read(ONE))[0][0] == 11


async def test_questions_asked_together_are_all_answered_though_one_is_long(backend: SqliteBackend) -> None:
    async with backend.read() as session:
        for _ in range(3):
            long, short = await session.read_batch((COUNT, {}), (ONE, {}))
            assert (long[0][0], short[0][0]) == (1_000_000, 10)


async def test_a_read_that_was_given_up_does_not_meet_the_next_one(backend: SqliteBackend) -> None:
    for _ in range(5):
        async with backend.read() as session:
            working = asyncio.ensure_future(session.read(COUNT))
            await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.wait({working})
        async with backend.read() as session:
            assert (await session.read(ONE))[0][0] == 10


async def test_a_lock_is_waited_for_without_holding_the_loop(path: Path) -> None:
    """Without a write-ahead log a writer locks readers out, as a recovery does with one. Their patience is 400 ms."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA journal_mode=DELETE")
    readers = ReaderPool(path, size=1, busy_ms=400)
    try:
        async with readers.connection() as lane:
            assert await lane.fetch(str(ONE)) == [(10,)]
        async with readers.connection() as lane:
            await lane.flush()
        await asyncio.sleep(3 * IDLE_SNAPSHOT_S)  # idle lanes end their snapshots
        holder.execute("BEGIN EXCLUSIVE")
        async with readers.connection() as lane:
            working = asyncio.ensure_future(lane.fetch(str(ONE)))
            assert await ticks_while(working) > 5
            with pytest.raises(Unavailable):
                await working
        holder.execute("ROLLBACK")
        async with readers.connection() as lane:
            assert await lane.fetch(str(ONE)) == [(10,)]
    finally:
        holder.close()
        await readers.close()


async def test_after_a_long_read_no_small_one_is_interrupted_in_its_place(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite counts steps through all runs of a statement, those of the lane's own pragmas too: now and then one comes early."""
    longer = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT count(*) FROM n")
    monkeypatch.setattr(inline_reads.SlowStatements, "is_slow", lambda *_: False)
    for _ in range(1_500):
        async with backend.read() as session:
            assert (await session.read(longer))[0][0] == 1_000
            assert (await session.read(ONE))[0][0] == 10
