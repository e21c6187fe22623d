"""`latchboard move-to` copies every row, continues after an interruption, and refuses what it cannot prove."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from adapters.storage.sql import SqlDatabase, move
from adapters.storage.sql.schema import DatabaseBeingMovedError, UnfinishedDatabaseMoveError
from adapters.storage.sql.tables import metadata
from domain.kernel.clock import DAY_MS, HOUR_MS
from support import postgres
from support.empty_database import bare_postgres, sqlite_url
from support.table_rows import Rows, a_value, all_rows

pytestmark = pytest.mark.skipif(not postgres.available(), reason="PostgreSQL is not installed")

READINGS = 250
GIVEN_EVENTS = 1_000
"""SQLite once gave this number to an event; the event is deleted."""


class Interrupted(Exception):
    pass


def ignore_progress(_table: str, _rows: int) -> None:
    pass


@pytest.fixture
async def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with two rows in every table and several batches of readings."""
    monkeypatch.setattr(move, "BATCH_ROWS", 100)
    path = tmp_path / "latchboard.db"
    database = SqlDatabase(sqlite_url(path))
    await database.start()
    await database.stop()
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            if table.name in ("event_writers", "database_life"):
                continue  # of PostgreSQL only; not moved
            connection.execute(table.insert(), [{c.name: a_value(table, c, row) for c in table.columns} for row in (1, 2)])
        first = (int(time.time() * 1_000) // DAY_MS - 12) * DAY_MS
        more = [{"device_no": 7, "ts": first + ts * HOUR_MS, "digest": -ts, "packed": bytes(5)} for ts in range(READINGS)]
        connection.execute(metadata.tables["readings"].insert(), more)
        connection.exec_driver_sql("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", (GIVEN_EVENTS,))
    engine.dispose()
    return path


def rows_of_sqlite(path: Path) -> Rows:
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        return all_rows(connection)


async def rows_of_postgres(url: str) -> Rows:
    engine = create_async_engine(url, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(all_rows)
    finally:
        await engine.dispose()


async def test_an_interrupted_move_blocks_starts_and_continues_until_both_are_equal(source: Path) -> None:
    url, seen, wanted = await bare_postgres(), 0, rows_of_sqlite(source)

    def interrupt(_table: str, _rows: int) -> None:
        nonlocal seen
        seen += 1
        if seen % 7 == 0:
            raise Interrupted

    interruptions = 0
    while True:
        try:
            result = await move.move_to_postgres(source, url, interrupt)
            break
        except Interrupted:
            interruptions += 1
            unfinished = SqlDatabase(url)
            with pytest.raises(UnfinishedDatabaseMoveError, match="move-to"):
                await unfinished.start()
            await unfinished.stop()
    assert interruptions > 3
    assert result.rows == sum(map(len, wanted.values())) - 1, "all but the life"
    found = await rows_of_postgres(url)
    writers = {row["position"] for row in found.pop("event_writers")}
    assert writers == {GIVEN_EVENTS}, "the next event of each writer is after all those of SQLite"
    assert found.pop("database_life") != wanted.pop("database_life"), "the target is another life"
    assert found | {"event_writers": []} == wanted

    target = await asyncpg.connect(postgres.plain_url())
    days = await target.fetchval("SELECT count(DISTINCT tableoid) FROM readings")
    of_its_own = 1 + (READINGS - 1) * HOUR_MS // DAY_MS
    assert days == of_its_own + 1, "the two rows of 1970 share what is older than all days"
    assert await target.fetchval("SELECT nextval(pg_get_serial_sequence('events', 'position'))") == GIVEN_EVENTS + 1
    await target.close()
    assert move.abandon_move(source)
    with pytest.raises(move.DatabaseMoveError, match="not empty"):
        await move.move_to_postgres(source, url, ignore_progress)


async def test_a_copy_that_differs_is_refused(source: Path) -> None:
    url, target = await bare_postgres(), await asyncpg.connect(postgres.plain_url())

    def interrupt_at_the_end(table: str, _rows: int) -> None:
        if table == metadata.sorted_tables[-1].name:
            raise Interrupted

    with pytest.raises(Interrupted):
        await move.move_to_postgres(source, url, interrupt_at_the_end)
    await target.execute("UPDATE readings SET packed = '\\x00' WHERE device_no = 7 AND digest = -3")
    await target.close()
    with pytest.raises(move.DatabaseMoveError, match="readings"):
        await move.move_to_postgres(source, url, ignore_progress)


async def test_text_that_postgresql_cannot_store_is_named(source: Path) -> None:
    with closing(sqlite3.connect(source)) as database, database:
        database.execute("UPDATE devices SET name = 'pump' || char(0)")
    with pytest.raises(move.DatabaseMoveError, match="devices"):
        await move.move_to_postgres(source, await bare_postgres(), ignore_progress)


async def test_another_installation_does_not_continue_a_move(source: Path, tmp_path: Path) -> None:
    url = await bare_postgres()

    def interrupt(_table: str, _rows: int) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        await move.move_to_postgres(source, url, interrupt)
    other = tmp_path / "other.db"
    database = SqlDatabase(sqlite_url(other))
    await database.start()
    await database.stop()
    with pytest.raises(move.DatabaseMoveError, match="Another installation"):
        await move.move_to_postgres(other, url, ignore_progress)


async def test_a_missing_database_and_an_unreachable_server_are_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(move.DatabaseMoveError, match=r"nothing\.db"):
        await move.move_to_postgres(tmp_path / "nothing.db", postgres.url(), ignore_progress)
    with pytest.raises(move.DatabaseMoveError, match="Check the URL"):
        await move.move_to_postgres(source, "postgresql+asyncpg://nobody@127.0.0.1:9/none", ignore_progress)


def interrupt_at(table: str) -> Callable[[str, int], None]:
    def interrupt(name: str, _rows: int) -> None:
        if name == table:
            raise Interrupted

    return interrupt


async def test_a_move_that_has_begun_keeps_services_off_the_source_until_it_is_abandoned(source: Path) -> None:
    url = await bare_postgres()
    with pytest.raises(Interrupted):
        await move.move_to_postgres(source, url, interrupt_at("readings"))
    database = SqlDatabase(sqlite_url(source))
    with pytest.raises(DatabaseBeingMovedError, match=r"move-to --abandon"):
        await database.start()
    await database.stop()
    assert move.abandon_move(source)
    assert not move.abandon_move(source)
    await SqlDatabase(sqlite_url(source)).start()


async def test_a_move_begins_anew_where_the_source_was_used_in_between(source: Path) -> None:
    url = await bare_postgres()
    with pytest.raises(Interrupted):
        await move.move_to_postgres(source, url, interrupt_at(metadata.sorted_tables[-1].name))
    move.abandon_move(source)
    with closing(sqlite3.connect(source)) as database, database:
        database.execute("INSERT INTO readings (device_no, ts, digest, packed) VALUES (1, 1, 99, x'00')")
        database.execute("DELETE FROM readings WHERE device_no = 7 AND digest = -1")
        database.execute("UPDATE devices SET name = 'renamed'")
    await move.move_to_postgres(source, url, ignore_progress)
    found, wanted = await rows_of_postgres(url), rows_of_sqlite(source)
    assert [found[name] for name in ("readings", "devices")] == [wanted[name] for name in ("readings", "devices")]


async def test_a_source_that_somebody_writes_past_the_mark_is_noticed_and_copied_anew(source: Path) -> None:
    url = await bare_postgres()
    with pytest.raises(Interrupted):
        await move.move_to_postgres(source, url, interrupt_at(metadata.sorted_tables[-1].name))
    with closing(sqlite3.connect(source)) as database, database:
        database.execute("UPDATE devices SET name = 'renamed'")
    with pytest.raises(move.DatabaseMoveError, match=r"devices: .* has changed"):
        await move.move_to_postgres(source, url, ignore_progress)
    await move.move_to_postgres(source, url, ignore_progress)
    assert (await rows_of_postgres(url))["devices"] == rows_of_sqlite(source)["devices"]


async def test_a_move_that_ended_between_its_last_steps_is_not_done_twice(source: Path) -> None:
    url = await bare_postgres()
    first = await move.move_to_postgres(source, url, ignore_progress)
    assert await move.move_to_postgres(source, url, ignore_progress) == first


async def test_a_move_that_has_ended_does_not_take_another_empty_database_for_its_target(source: Path) -> None:
    first = await move.move_to_postgres(source, await bare_postgres(), ignore_progress)
    assert await move.move_to_postgres(source, await bare_postgres(), ignore_progress) == first
    assert (await rows_of_postgres(postgres.url()))["devices"] == rows_of_sqlite(source)["devices"]
