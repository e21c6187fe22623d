"""Readers have connections of their own: each sees the last commit before its first statement, and delays no writer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adapters.storage.sql.sqlite.look_up_connection import SqliteLookUpConnection
from domain.kernel.errors import DomainError, Unavailable

IDLE_SNAPSHOT_S = 0.1
"""How long an idle connection may keep its old snapshot. Under load the next reader ends it with its first statement."""


class SqliteReaderPool:
    """At most `size` connections, opened when needed. The most recently used one comes first, because its cache is warm."""

    def __init__(self, path: Path, *, size: int = 6, acquire_timeout_s: float = 5.0, busy_timeout_ms: int = 5_000) -> None:
        self._path = path
        self._size = size
        self._acquire_timeout_s = acquire_timeout_s
        self._busy_timeout_ms = busy_timeout_ms
        self._slots = asyncio.Semaphore(size)
        self._idle: list[SqliteLookUpConnection] = []
        self._closed = False
        self._snapshot_task: asyncio.Task[None] | None = None

    async def acquire(self) -> SqliteLookUpConnection:
        """A connection in a snapshot that begins with the first statement. Raises Unavailable when none is free in time. Give it
        back with `release`."""
        await self._acquire_slot()
        try:
            if self._closed:
                raise Unavailable("The service is stopping. Try again in a moment.")
            connection = self._idle.pop() if self._idle else await self._open()
        except BaseException:
            self._slots.release()
            raise
        connection.defer_control("BEGIN")
        return connection

    async def release(self, connection: SqliteLookUpConnection) -> None:
        try:
            if connection.transaction_lost:
                await connection.close()
            else:
                self._keep(connection)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Wait for the readers, then close every connection."""
        for _ in range(self._size):
            await self._acquire_slot()
        self._closed = True
        if self._snapshot_task is not None:
            self._snapshot_task.cancel()
            await asyncio.wait({self._snapshot_task})
        while self._idle:
            await self._idle.pop().close()
        for _ in range(self._size):
            self._slots.release()

    async def _acquire_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # free at once: a timeout would cost more than the wait
            return
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable("Too many reads are running. Try again in a moment.") from None

    async def _open(self) -> SqliteLookUpConnection:
        return await SqliteLookUpConnection.open(self._path, reader=True, busy_timeout_ms=self._busy_timeout_ms)

    def _keep(self, connection: SqliteLookUpConnection) -> None:
        connection.defer_control("ROLLBACK")
        self._idle.append(connection)
        if self._snapshot_task is None or self._snapshot_task.done():
            self._snapshot_task = asyncio.create_task(self._end_idle_snapshots(), name="storage-readers")

    async def _end_idle_snapshots(self) -> None:
        """End the snapshots of idle connections; an old snapshot keeps SQLite from reusing the write-ahead log."""
        while any(connection.has_deferred for connection in self._idle):
            await asyncio.sleep(IDLE_SNAPSHOT_S)
            for connection in [connection for connection in self._idle if connection.has_deferred]:
                try:
                    await connection.flush()
                except DomainError:
                    if connection in self._idle:
                        self._idle.remove(connection)
                        await connection.close()
