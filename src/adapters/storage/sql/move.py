"""Copies every row of an SQLite file into an empty PostgreSQL database, and proves that both hold the same.

Tables are copied in the order of their foreign keys, rows in the order of their primary keys, in batches. The transaction that
writes a batch also writes how far the copy is and the digest of the rows so far, so an interrupted copy continues where it was.
While the table `move_progress` exists, no service starts on that database. A table's digest is the sum, modulo 2^64, of the
BLAKE2b hashes of its rows, so it does not depend on the order in which a database returns them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import Boolean, Table, make_url

from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.repositories.events import LAST_GIVEN
from adapters.storage.sql.repositories.rollups import MAX_NEW_RANGES
from adapters.storage.sql.schema import PROGRESS_TABLE
from adapters.storage.sql.tables import database_life, event_writers, metadata
from domain.kernel.clock import DAY_MS
from domain.kernel.errors import Unavailable

BATCH_ROWS = 10_000
CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 600.0
_MODULUS = 2**64

Row = tuple[Any, ...]


class DatabaseMoveError(Unavailable):
    """The copy cannot begin, continue or be trusted. The source is unchanged."""

    code = "MOVE_FAILED"


@dataclass(frozen=True, slots=True)
class TableCopyCheckpoint:
    table: str
    rows: int
    digest: int
    """Of the rows copied so far."""

    last_key: Sequence[Any] | None
    """Primary key of the last copied row."""

    finished: bool


@dataclass(frozen=True, slots=True)
class DatabaseMoveResult:
    tables: int
    rows: int


async def move_to_postgres(source: Path, url: str, on_progress: Callable[[str, int], None]) -> DatabaseMoveResult:
    """Copy `source`, whose service must be stopped, to the database at `url`. `on_progress` gets a table and its copied rows.

    Run it again after an interruption. Raises DatabaseMoveError, DatabaseUnusableError and what `SqlDatabase.revision` raises."""
    await _require_current_source(source)
    target = await _connect(url)
    try:
        if not await target.fetchval("SELECT to_regclass($1) IS NOT NULL", PROGRESS_TABLE):
            await _prepare_target(url, target, _source_identity(source), _reading_times(source))
        await _require_same_source(target, _source_identity(source))
        with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as rows:
            total = 0
            for table in _tables():
                total += await _copy_table(rows, target, table, on_progress)
            await _continue_sequences(rows, target)
            # The events of SQLite are before the next one of each writer number.
            await target.execute(f"UPDATE event_writers SET position = {LAST_GIVEN}")  # noqa: S608 - a constant
        for table in _tables():
            await _require_equal(target, table)
        await target.execute(f"DROP TABLE {PROGRESS_TABLE}")
        return DatabaseMoveResult(len(_tables()), total)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, sqlite3.Error) as error:
        raise DatabaseMoveError(
            f"{error or type(error).__name__}. Nothing is lost: run the command again, it continues."
        ) from error
    finally:
        target.terminate()


def _tables() -> list[Table]:
    """All but the writer numbers of the event log, which only PostgreSQL has, and the life: the target begins another."""
    return [table for table in metadata.sorted_tables if table not in (event_writers, database_life)]


async def _require_current_source(source: Path) -> None:
    database = SqlDatabase(f"sqlite+aiosqlite:///{source}", pool_size=1)
    try:
        revision = await database.revision()
    finally:
        await database.stop()
    if revision is None:
        raise DatabaseMoveError(f"There is no database {source}. Set LATCHBOARD_DATA_DIR to the service's data directory.")
    if revision != HEAD:
        raise DatabaseMoveError(
            f"{source} has schema revision {revision}, not {HEAD}. Start this version of the service on it once."
        )


async def _connect(url: str) -> asyncpg.Connection:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        return await asyncpg.connect(plain, timeout=CONNECT_TIMEOUT_S, command_timeout=STATEMENT_TIMEOUT_S)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        shown = make_url(url).render_as_string()
        raise DatabaseMoveError(
            f"{shown} cannot be opened: {error or type(error).__name__}. Check the URL and PostgreSQL."
        ) from error


async def _prepare_target(url: str, target: asyncpg.Connection, identity: str, times: tuple[int, int] | None) -> None:
    """Create the schema in an empty database. A database that has the schema and holds no row counts as empty. `times`: of the
    oldest and the newest reading."""
    database = SqlDatabase(url, pool_size=1)
    try:
        await database.start()
        if times is not None:
            async with database.uow.write() as tx:
                await tx.range_partitions.divide_past(max(times[0], times[1] - MAX_NEW_RANGES * DAY_MS))
                await tx.range_partitions.prepare(times[1])
    finally:
        await database.stop()
    for table in _tables():
        if table.name != "write_probes" and await target.fetchval(f"SELECT EXISTS (SELECT FROM {table.name})"):  # noqa: S608
            raise DatabaseMoveError(
                f"The database is not empty: {table.name} has rows. Name an empty database; a move never mixes two."
            )
    async with target.transaction():
        await target.execute(
            f"CREATE TABLE {PROGRESS_TABLE} (name text PRIMARY KEY, copied bigint NOT NULL, digest numeric NOT NULL, "
            "last_key bytea, finished boolean NOT NULL)"
        )
        await target.execute("TRUNCATE write_probes")
        await target.execute(f"INSERT INTO {PROGRESS_TABLE} VALUES ($1, 0, 0, $2, false)", "", identity.encode())  # noqa: S608


def _source_identity(source: Path) -> str:
    """Names the installation: the ids of its accounts, which are random."""
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        accounts = [account for (account,) in database.execute("SELECT account_id FROM accounts ORDER BY account_id")]
    return hashlib.sha256("\n".join(accounts).encode()).hexdigest()


def _reading_times(source: Path) -> tuple[int, int] | None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        [(oldest, newest)] = database.execute("SELECT min(ts), max(ts) FROM readings").fetchall()
    return None if oldest is None else (oldest, newest)


async def _require_same_source(target: asyncpg.Connection, identity: str) -> None:
    begun = await target.fetchval(f"SELECT last_key FROM {PROGRESS_TABLE} WHERE name = ''")  # noqa: S608
    if begun != identity.encode():
        raise DatabaseMoveError(
            "Another installation's move into this database is not finished. Finish it, or drop this database."
        )


async def _copy_table(
    source: sqlite3.Connection, target: asyncpg.Connection, table: Table, on_progress: Callable[[str, int], None]
) -> int:
    progress = await _read_progress(target, table)
    while not progress.finished:
        batch = list(_read_batch(source, table, progress.last_key))
        progress = TableCopyCheckpoint(
            table.name,
            progress.rows + len(batch),
            (progress.digest + sum(map(row_digest, batch))) % _MODULUS,
            _key_of(table, batch[-1]) if batch else progress.last_key,
            finished=len(batch) < BATCH_ROWS,
        )
        await _write_batch(target, table, batch, progress)
        on_progress(table.name, progress.rows)
    return progress.rows


async def _read_progress(target: asyncpg.Connection, table: Table) -> TableCopyCheckpoint:
    query = f"SELECT copied, digest, last_key, finished FROM {PROGRESS_TABLE} WHERE name = $1"  # noqa: S608 - our name
    row = await target.fetchrow(query, table.name)
    if row is None:
        return TableCopyCheckpoint(table.name, 0, 0, None, finished=False)
    key = None if row["last_key"] is None else msgspec.msgpack.decode(row["last_key"])
    return TableCopyCheckpoint(table.name, row["copied"], int(row["digest"]), key, row["finished"])


def _read_batch(source: sqlite3.Connection, table: Table, after: Sequence[Any] | None) -> Iterator[Row]:
    key = ", ".join(column.name for column in table.primary_key)
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    condition = f"WHERE ({key}) > ({', '.join('?' for _ in after)})" if after is not None else ""
    query = f'SELECT {names} FROM "{table.name}" {condition} ORDER BY {key} LIMIT {BATCH_ROWS}'  # noqa: S608 - our names
    booleans = [position for position, column in enumerate(table.columns) if isinstance(column.type, Boolean)]
    for found in source.execute(query, tuple(after or ())):
        row = list(found)
        for position in booleans:
            row[position] = None if row[position] is None else bool(row[position])
        yield tuple(row)


def _key_of(table: Table, row: Row) -> list[Any]:
    positions = {column.name: position for position, column in enumerate(table.columns)}
    return [row[positions[column.name]] for column in table.primary_key]


async def _write_batch(target: asyncpg.Connection, table: Table, batch: list[Row], progress: TableCopyCheckpoint) -> None:
    async with target.transaction():
        if batch:
            columns = [column.name for column in table.columns]
            try:
                await target.copy_records_to_table(table.name, records=batch, columns=columns, timeout=STATEMENT_TIMEOUT_S)
            except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError) as error:
                keys = f"{_key_of(table, batch[0])} to {_key_of(table, batch[-1])}"
                raise DatabaseMoveError(f"PostgreSQL refuses a row of {table.name} between {keys}: {error}") from error
        await target.execute(
            f"INSERT INTO {PROGRESS_TABLE} VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE SET "  # noqa: S608
            "copied = excluded.copied, digest = excluded.digest, last_key = excluded.last_key, finished = excluded.finished",
            table.name,
            progress.rows,
            progress.digest,
            None if progress.last_key is None else msgspec.msgpack.encode(progress.last_key),
            progress.finished,
        )


async def _continue_sequences(source: sqlite3.Connection, target: asyncpg.Connection) -> None:
    """New rows get numbers above all that SQLite ever gave, deleted rows included: cursors name them."""
    given = dict(source.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    for table in _tables():
        column = table.autoincrement_column
        if column is None:
            continue
        highest = await target.fetchval(f"SELECT max({column.name}) FROM {table.name}")  # noqa: S608 - our names
        last = max(highest or 0, given.get(table.name, 0))
        if last:
            await target.execute("SELECT setval(pg_get_serial_sequence($1, $2), $3)", table.name, column.name, last)


async def _require_equal(target: asyncpg.Connection, table: Table) -> None:
    """Read the copy back, and compare its count and digest with what was read from the source."""
    wanted = await _read_progress(target, table)
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    rows, digest = 0, 0
    async with target.transaction(readonly=True):
        async for row in target.cursor(f"SELECT {names} FROM {table.name}", prefetch=BATCH_ROWS):  # noqa: S608
            rows, digest = rows + 1, digest + row_digest(tuple(row))
    if (rows, digest % _MODULUS) != (wanted.rows, wanted.digest):
        raise DatabaseMoveError(
            f"{table.name}: {wanted.rows} rows were copied and {rows} were read back, or their contents differ. "
            "Do not use this database: drop it and begin again with an empty one."
        )


def row_digest(row: Row) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(row), digest_size=8).digest())
