"""Reads and writes the database of a running service from outside, for SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from sqlalchemy import Table

from adapters.storage.sql.tables import metadata
from support import postgres
from support.service import Service
from support.waiting import TIMEOUT_S

KEPT_AFTER_DELETION = {"notifications", "events", "event_counts", "tombstones"}
"""The event log outlives its devices, and an owed mail tells of it; a tombstone says what is still to be deleted."""


def on_postgres(service: Service) -> bool:
    return "LATCHBOARD_DATABASE_URL" in service.settings


async def rows(service: Service, sql: str) -> Sequence[Sequence[Any]]:
    """The rows of a statement, in a transaction of its own."""
    if on_postgres(service):
        async with _postgres() as connection:
            return [tuple(row) for row in await connection.fetch(sql)]

    def read() -> list[Any]:
        with contextlib.closing(_sqlite(service)) as connection:
            return connection.execute(sql).fetchall()

    return await asyncio.to_thread(read)


async def insert_rows(service: Service, table: str, values: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows with a value for each column."""
    if on_postgres(service):
        async with _postgres() as connection:
            await connection.copy_records_to_table(table, records=values)
        return

    def write() -> None:
        with contextlib.closing(_sqlite(service)) as connection:
            places = ", ".join("?" * len(values[0]))
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", values)
            connection.execute("COMMIT")

    await asyncio.to_thread(write)


@contextlib.asynccontextmanager
async def writes_blocked(service: Service) -> AsyncIterator[None]:
    """Hold a lock that blocks writers and not readers."""
    if on_postgres(service):
        async with _postgres() as connection, connection.transaction():
            await connection.execute("LOCK TABLE readings, events, executions, devices IN EXCLUSIVE MODE")
            yield
        return
    holder = _sqlite(service)
    try:
        await asyncio.to_thread(holder.execute, "BEGIN IMMEDIATE")
        yield
    finally:
        holder.close()


async def count_rows_of_device(service: Service, device_id: str, device_no: int) -> dict[str, int]:
    """How many rows of each table belong to a device, by the columns that name a device."""
    found: dict[str, int] = {}
    for table in metadata.sorted_tables:
        if "device_no" in table.c and table.name != "devices":
            where = f"device_no = {device_no}"
        elif "device_id" in table.c:
            where = f"device_id = '{device_id}'"
        else:
            continue
        [[count]] = await rows(service, f"SELECT count(*) FROM {table.name} WHERE {where}")
        found[table.name] = int(count)
    return found


async def dangling_references(service: Service) -> list[str]:
    """Foreign keys whose row is missing, those that the database enforces included."""
    wrong = []
    for table, column, other, key in _references(metadata.sorted_tables):
        orphans = f"SELECT 1 FROM {other} WHERE {other}.{key} = {table}.{column}"
        if await rows(service, f"SELECT 1 FROM {table} WHERE {column} IS NOT NULL AND NOT EXISTS ({orphans}) LIMIT 1"):
            wrong.append(f"{table}.{column}")
    return wrong


def _references(tables: Sequence[Table]) -> Iterator[tuple[str, str, str, str]]:
    for table in tables:
        for key in table.foreign_keys:
            yield table.name, key.parent.name, key.column.table.name, key.column.name


def _sqlite(service: Service) -> sqlite3.Connection:
    path = service.data_dir / "latchboard.db"
    return sqlite3.connect(path, isolation_level=None, timeout=TIMEOUT_S, check_same_thread=False)


@contextlib.asynccontextmanager
async def _postgres() -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(postgres.plain_url(), timeout=TIMEOUT_S, command_timeout=TIMEOUT_S)
    try:
        yield connection
    finally:
        await connection.close()
