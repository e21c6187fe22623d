"""Where `telemetry_store.py` stores its messages: an SQLite file, or a PostgreSQL cluster of its own, both below its directory.

Both are written without durability while they are filled, which a benchmark does not need, and by the statements that load fastest:
`INSERT` of many rows on SQLite, COPY into the daily partitions on PostgreSQL. Afterwards PostgreSQL runs with its defaults.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg

from adapters.storage.sql import SqlDatabase
from support.postgres import Cluster

Result = TypeVar("Result")
INSERT = "INSERT OR IGNORE INTO readings (device_no, ts, digest, packed) VALUES (?, ?, ?, ?)"
MARK = "INSERT OR IGNORE INTO rollups_due (device_no, hour, marked_ms) VALUES (?, ?, 1)"
MARK_ON_POSTGRES = "INSERT INTO rollups_due (device_no, hour, marked_ms) SELECT *, 1 FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT DO NOTHING"
METRIC_ON_POSTGRES = (
    "INSERT INTO device_metrics VALUES ($1, $2, $3, true) ON CONFLICT (device_no, metric_no) DO UPDATE SET unit = excluded.unit"
)
LATEST_ON_POSTGRES = (
    "INSERT INTO device_latest (device_no, ts, packed) VALUES ($1, $2, $3) "
    "ON CONFLICT (device_no) DO UPDATE SET ts = excluded.ts, packed = excluded.packed"
)
NEWEST = "SELECT ts FROM readings WHERE device_no = {} ORDER BY ts DESC LIMIT 1"
"""Devices are deleted from their oldest reading on, so this finds one at once until there is none."""
FOR_THE_LOAD = (
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "autovacuum=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_wal_size=4GB",
)


class TelemetryTables(Protocol):
    """An open connection, beside the service."""

    def prepare(self, oldest_ms: int, newest_ms: int) -> None:
        """Before the first rows, whose times are in this range."""

    def device_numbers(self) -> list[int]: ...
    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None: ...

    def store(self, metrics: Sequence[Any], rows: Sequence[Any], hours: Sequence[tuple[int, int]]) -> None:
        """Metrics of devices, messages, and the hours to be rolled up, in one transaction."""

    def store_latest(self, latest: Sequence[Any]) -> None: ...

    def size(self) -> int:
        """Bytes on disk, without the log of writes."""

    def finish(self) -> None:
        """After the last row."""

    def has_readings(self, device_no: int) -> bool: ...
    def device_number(self, device_id: str) -> int: ...
    def close(self) -> None: ...


class SqliteTables:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)

    def prepare(self, oldest_ms: int, newest_ms: int) -> None:
        for pragma in ("synchronous=OFF", "cache_size=-400000", "wal_autocheckpoint=20000"):
            self._database.execute(f"PRAGMA {pragma}")

    def device_numbers(self) -> list[int]:
        return [row[0] for row in self._database.execute("SELECT device_no FROM devices ORDER BY device_no")]

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        self._database.executemany("INSERT OR IGNORE INTO metric_names VALUES (?, ?)", names)

    def store(self, metrics: Sequence[Any], rows: Sequence[Any], hours: Sequence[tuple[int, int]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO device_metrics VALUES (?, ?, ?, 1)", metrics)
        self._database.executemany(INSERT, rows)
        self._database.executemany(MARK, hours)
        self._database.execute("COMMIT")

    def store_latest(self, latest: Sequence[Any]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO device_latest (device_no, ts, packed) VALUES (?, ?, ?)", latest)

    def size(self) -> int:
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    def finish(self) -> None:
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def has_readings(self, device_no: int) -> bool:
        return self._database.execute(NEWEST.format("?"), [device_no]).fetchone() is not None

    def device_number(self, device_id: str) -> int:
        [number] = self._database.execute("SELECT device_no FROM devices WHERE device_id = ?", [device_id]).fetchone()
        return int(number)

    def close(self) -> None:
        self._database.close()


class PostgresTables:
    """A thread runs the connection, so that the engine packs messages while the last ones are stored."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._stored: Future[None] | None = None
        plain = url.replace("+asyncpg", "")
        self._connection = self._run(asyncpg.connect(plain, server_settings={"enable_seqscan": "off"}))

    def prepare(self, oldest_ms: int, newest_ms: int) -> None:
        self._run(self._make_partitions(oldest_ms, newest_ms))

    async def _make_partitions(self, oldest_ms: int, newest_ms: int) -> None:
        database = SqlDatabase(self._url)
        await database.start()
        async with database.uow.write() as tx:
            await tx.range_partitions.divide_past(oldest_ms)
            await tx.range_partitions.prepare(newest_ms)
        await database.stop()

    def device_numbers(self) -> list[int]:
        return [row[0] for row in self._run(self._connection.fetch("SELECT device_no FROM devices ORDER BY device_no"))]

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        statement = "INSERT INTO metric_names VALUES ($1, $2) ON CONFLICT DO NOTHING"
        self._run(self._connection.executemany(statement, names))

    def store(self, metrics: Sequence[Any], rows: Sequence[Any], hours: Sequence[tuple[int, int]]) -> None:
        self._wait()
        self._stored = asyncio.run_coroutine_threadsafe(self._store(metrics, rows, hours), self._loop)

    async def _store(self, metrics: Sequence[Any], rows: Sequence[Any], hours: Sequence[tuple[int, int]]) -> None:
        async with self._connection.transaction():
            if metrics:
                await self._connection.executemany(METRIC_ON_POSTGRES, metrics)
            await self._connection.copy_records_to_table(
                "readings", records=rows, columns=["device_no", "ts", "digest", "packed"]
            )
            await self._connection.execute(MARK_ON_POSTGRES, *zip(*hours, strict=True))

    def store_latest(self, latest: Sequence[Any]) -> None:
        self._wait()
        self._run(self._connection.executemany(LATEST_ON_POSTGRES, latest))

    def size(self) -> int:
        self._wait()
        return int(self._run(self._connection.fetchval("SELECT pg_database_size(current_database())")))

    def finish(self) -> None:
        """As autovacuum would have left it after thirty days."""
        self._wait()
        for statement in ("VACUUM (ANALYZE)", "CHECKPOINT"):
            self._run(self._connection.execute(statement))

    def has_readings(self, device_no: int) -> bool:
        return self._run(self._connection.fetchval(NEWEST.format("$1"), device_no)) is not None

    def device_number(self, device_id: str) -> int:
        return int(self._run(self._connection.fetchval("SELECT device_no FROM devices WHERE device_id = $1", device_id)))

    def close(self) -> None:
        self._wait()
        self._run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self) -> None:
        if self._stored is not None:
            self._stored.result()
            self._stored = None

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class SqliteDirectory:
    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.settings: dict[str, Any] = {}
        self._path = directory / "data" / "latchboard.db"

    @contextmanager
    def running(self, *, load: bool) -> Iterator[None]:
        yield

    @contextmanager
    def tables(self) -> Iterator[TelemetryTables]:
        tables = SqliteTables(self._path)
        try:
            yield tables
        finally:
            tables.close()


class PostgresDirectory:
    def __init__(self, directory: Path) -> None:
        self.path = directory
        self._cluster = Cluster(directory / "postgres")
        self._url = self._cluster.url("latchboard")
        self.settings: dict[str, Any] = {"LATCHBOARD_DATABASE_URL": self._url}

    @contextmanager
    def running(self, *, load: bool) -> Iterator[None]:
        """With the server's default settings, which are durable, unless it is loaded."""
        if load:
            self._cluster.create()
        self._cluster.start(*(FOR_THE_LOAD if load else ()))
        try:
            if load:
                asyncio.run(_create_database(self._cluster.url("postgres")))
            yield
        finally:
            self._cluster.stop("fast")

    @contextmanager
    def tables(self) -> Iterator[TelemetryTables]:
        tables = PostgresTables(self._url)
        try:
            yield tables
        finally:
            tables.close()


async def _create_database(url: str) -> None:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    await connection.execute("CREATE DATABASE latchboard")
    await connection.close()
