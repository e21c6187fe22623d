"""Databases with the current schema and no rows, made once in each test process: SQLite's file is copied, PostgreSQL's rows are
deleted.

Making the tables takes longer than most tests. Tests of the schema itself, of query plans and of a start on nothing use `sqlite_url`
and `bare_postgres`.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, make_url

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.schema import ensure_sqlite_schema
from support import postgres

if TYPE_CHECKING:
    from asyncpg import Connection

_TABLES = "FROM pg_class WHERE relnamespace = 'public'::regnamespace"
_FINGERPRINT = f"SELECT md5(string_agg(concat_ws(' ', relname, relkind, relnatts, relchecks), ',' ORDER BY relname)) {_TABLES}"
_WRITTEN_TABLES = f"SELECT coalesce(array_agg(relname::text), '{{}}') {_TABLES} AND relkind = 'r' AND pg_relation_size(oid) > 0"
_HAS_LARGE_OR_ANALYZED_TABLES = (
    f"SELECT count(*) > 0 {_TABLES} AND (pg_relation_size(oid) > 262144 OR relkind = 'r' AND reltuples > 0)"
)
_RESTART_NUMBERS = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence WHERE pg_sequence_last_value(seqrelid) IS NOT NULL"
_END_OTHER_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@dataclass(frozen=True)
class MadeSchema:
    fingerprint: str
    """Tells whether a test has changed the schema."""
    rows: dict[str, bytes]
    """What a new database holds, by table."""


_made: dict[str, MadeSchema] = {}
"""By URL."""


def sqlite_url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def empty_sqlite(path: Path) -> str:
    """The URL of a new file at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_new_file())
    return sqlite_url(path)


@cache
def _new_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="latchboard-") as folder:
        path = Path(folder) / "new.db"
        ensure_sqlite_schema(path)
        return path.read_bytes()


async def empty_postgres() -> str:
    """The URL of the PostgreSQL test database, emptied."""
    if not await _emptied():
        await _create()
        database = SqlDatabase(postgres.url())
        await database.start()
        await database.stop()
        await _remember_schema()
    return postgres.url()


async def bare_postgres() -> str:
    """The URL of the PostgreSQL test database, which is new and has no tables."""
    await _create()
    return postgres.url()


async def _create() -> None:
    _made.pop(postgres.url(), None)
    url = make_url(postgres.plain_url())
    async with _connection(url.set(database="postgres")) as connection:
        await connection.execute(f'DROP DATABASE IF EXISTS "{url.database}" WITH (FORCE)')
        await connection.execute(f'CREATE DATABASE "{url.database}"')


async def _remember_schema() -> None:
    async with _connection(make_url(postgres.plain_url())) as connection:
        rows = {table: await _copy_out(connection, table) for table in await connection.fetchval(_WRITTEN_TABLES)}
        _made[postgres.url()] = MadeSchema(await connection.fetchval(_FINGERPRINT), rows)


async def _emptied() -> bool:
    """Empty the tables that were written to, and put the rows of a new database back; False if a test has changed the schema."""
    if (schema := _made.get(postgres.url())) is None:
        return False
    async with _connection(make_url(postgres.plain_url())) as connection:
        await connection.execute(_END_OTHER_CONNECTIONS)
        if await connection.fetchval(_FINGERPRINT) != schema.fingerprint:
            return False
        await _delete_rows(connection, await connection.fetchval(_WRITTEN_TABLES))
        for table, rows in schema.rows.items():
            await connection.copy_to_table(table, source=io.BytesIO(rows))
    return True


async def _delete_rows(connection: Connection, tables: list[str]) -> None:
    """TRUNCATE makes new files for every table and index that refers to the tables: 150 ms of processor time, where DELETE takes
    three. But DELETE keeps the size of the files and what ANALYZE found."""
    if await connection.fetchval(_HAS_LARGE_OR_ANALYZED_TABLES):
        await connection.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY CASCADE")
        return
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")  # no trigger checks the foreign keys
        await connection.execute("".join(f"DELETE FROM {table};" for table in tables))
        await connection.execute(_RESTART_NUMBERS)


async def _copy_out(connection: Connection, table: str) -> bytes:
    rows = io.BytesIO()
    await connection.copy_from_table(table, output=rows)
    return rows.getvalue()


@asynccontextmanager
async def _connection(url: URL) -> AsyncIterator[Connection]:
    import asyncpg

    connection = await asyncpg.connect(url.render_as_string(hide_password=False))
    try:
        yield connection
    finally:
        await connection.close()
