"""Copies every row of an SQLite file into an empty PostgreSQL database, and proves that both hold the same.

The source is marked before the first row is read, so that no service writes to it any more; the target keeps the same mark. A
copy that finds another mark there, because the move was abandoned meanwhile or the source restored, begins anew. At the end the
source is read once more as a whole.

Tables are copied in the order of their foreign keys, rows in the order of their primary keys, in batches. The transaction that
writes a batch also writes how far the copy is and the digest of the rows so far, so an interrupted copy continues where it was.
While the table `move_progress` exists, no service starts on that database. A table's digest is the sum, modulo 2^64, of the
BLAKE2b hashes of its rows, so it does not depend on the order in which a database returns them.
"""

from __future__ import annotations

import hashlib
import secrets
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
from adapters.storage.sql.schema import MOVE_MARK_TABLE, PROGRESS_TABLE
from adapters.storage.sql.sqlite.vacuum import BUSY_TIMEOUT_S
from adapters.storage.sql.tables import database_life, event_writers, metadata
from domain.kernel.clock import DAY_MS
from domain.kernel.errors import Unavailable

BATCH_ROWS = 10_000
CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 600.0
_MODULUS = 2**64
MARK = "*"
"""The row of the progress that has the mark of the source; the nameless one has its installation."""

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

    Run it again after an interruption. Raises DatabaseMoveError and DatabaseUnusableError."""
    _require_current_source(source)
    target = await _connect(url)
    try:
        is_begun = await target.fetchval("SELECT to_regclass($1) IS NOT NULL", PROGRESS_TABLE)
        mark = _read_mark(source)
        if mark is not None and mark.target_life is not None and not is_begun and mark.target_life == await _target_life(target):
            return DatabaseMoveResult(len(_tables()), mark.rows)  # only the end of the move is missing
        if is_begun:
            await _require_same_installation(target, _source_identity(source))
            if mark is None or mark.name != await _target_mark(target):
                await _empty_target(target)
                is_begun = False
        if not is_begun:
            await _prepare_target(url, target, source)
        with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as rows:
            total = 0
            for table in _tables():
                total += await _copy_table(rows, target, table, on_progress)
            await _continue_sequences(rows, target)
            # The events of SQLite are before the next one of each writer number.
            await target.execute(f"UPDATE event_writers SET position = {LAST_GIVEN}")  # noqa: S608 - a constant
        for table in _tables():
            _require_unchanged(source, table, await _read_progress(target, table))
            await _require_equal(target, table)
        _record_copied(source, total, await _target_life(target))
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


@dataclass(frozen=True, slots=True)
class MoveMark:
    """In the source. `target_life`: of the database that proved to hold the same `rows`; None before that."""

    name: str
    target_life: str | None
    rows: int


def _read_mark(source: Path) -> MoveMark | None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (MOVE_MARK_TABLE,)).fetchone():
            return None
        found = database.execute(f"SELECT mark, target_life, copied FROM {MOVE_MARK_TABLE}").fetchone()  # noqa: S608 - our name
    return MoveMark(*found)


def _write_mark(source: Path, target: str) -> str:
    """From now on no service opens the source. Returns the name of the new mark."""
    name = secrets.token_hex(8)
    with closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)) as database, database:
        database.execute(f"DROP TABLE IF EXISTS {MOVE_MARK_TABLE}")
        database.execute(f"CREATE TABLE {MOVE_MARK_TABLE} (mark TEXT, target TEXT, target_life TEXT, copied INTEGER)")
        database.execute(f"INSERT INTO {MOVE_MARK_TABLE} VALUES (?, ?, NULL, 0)", (name, target))  # noqa: S608 - our name
    return name


def _record_copied(source: Path, rows: int, target_life: str | None) -> None:
    with closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)) as database, database:
        database.execute(f"UPDATE {MOVE_MARK_TABLE} SET target_life = ?, copied = ?", (target_life, rows))  # noqa: S608 - our name


def abandon_move(source: Path) -> bool:
    """Let services open the source again; the next move begins anew. False if none had begun. Raises sqlite3.Error."""
    if _read_mark(source) is None:
        return False
    with closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)) as database, database:
        database.execute(f"DROP TABLE {MOVE_MARK_TABLE}")
    return True


def _require_current_source(source: Path) -> None:
    """Raises DatabaseMoveError."""
    revision = None
    if source.is_file() and source.stat().st_size:
        try:
            with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
                revision = (database.execute("SELECT version_num FROM alembic_version").fetchone() or (None,))[0]
        except sqlite3.Error as error:
            raise DatabaseMoveError(f"{source} cannot be read: {error}. Check that it is the service's database.") from None
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


async def _target_mark(target: asyncpg.Connection) -> str | None:
    mark: str | None = await target.fetchval(f"SELECT convert_from(last_key, 'UTF8') FROM {PROGRESS_TABLE} WHERE name = $1", MARK)  # noqa: S608
    return mark


async def _target_life(target: asyncpg.Connection) -> str | None:
    if not await target.fetchval("SELECT to_regclass($1) IS NOT NULL", database_life.name):
        return None
    life: str | None = await target.fetchval("SELECT life FROM database_life")
    return life


async def _empty_target(target: asyncpg.Connection) -> None:
    """Throw away what an earlier move of this installation has copied: the source may have changed since."""
    async with target.transaction():
        await target.execute(f"TRUNCATE {', '.join(table.name for table in _tables())} CASCADE")
        await target.execute(f"DROP TABLE {PROGRESS_TABLE}")


async def _prepare_target(url: str, target: asyncpg.Connection, source: Path) -> None:
    """Create the schema in an empty database, and mark both. A database that has the schema and holds no row counts as empty."""
    identity, times = _source_identity(source), _reading_times(source)
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
    mark = _write_mark(source, make_url(url).render_as_string())
    async with target.transaction():
        await target.execute(
            f"CREATE TABLE {PROGRESS_TABLE} (name text PRIMARY KEY, copied bigint NOT NULL, digest numeric NOT NULL, "
            "last_key bytea, finished boolean NOT NULL)"
        )
        await target.execute("TRUNCATE write_probes")
        await target.execute(f"INSERT INTO {PROGRESS_TABLE} VALUES ($1, 0, 0, $2, false)", "", identity.encode())  # noqa: S608
        await target.execute(f"INSERT INTO {PROGRESS_TABLE} VALUES ($1, 0, 0, $2, false)", MARK, mark.encode())  # noqa: S608


def _source_identity(source: Path) -> str:
    """Names the installation: the ids of its accounts, which are random."""
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        accounts = [account for (account,) in database.execute("SELECT account_id FROM accounts ORDER BY account_id")]
    return hashlib.sha256("\n".join(accounts).encode()).hexdigest()


def _reading_times(source: Path) -> tuple[int, int] | None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        [(oldest, newest)] = database.execute("SELECT min(ts), max(ts) FROM readings").fetchall()
    return None if oldest is None else (oldest, newest)


async def _require_same_installation(target: asyncpg.Connection, identity: str) -> None:
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


def _require_unchanged(source: Path, table: Table, copied: TableCopyCheckpoint) -> None:
    """Read the whole table of the source once more. Raises DatabaseMoveError."""
    rows, digest, last = 0, 0, None
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as database:
        while batch := list(_read_batch(database, table, last)):
            rows, digest, last = rows + len(batch), digest + sum(map(row_digest, batch)), _key_of(table, batch[-1])
    if (rows, digest % _MODULUS) != (copied.rows, copied.digest):
        abandon_move(source)
        raise DatabaseMoveError(
            f"{table.name}: {source} has changed while it was copied ({rows} rows, {copied.rows} copied, or other contents). "
            "Make sure that nothing writes to it, and run the command again: it begins anew."
        )


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
