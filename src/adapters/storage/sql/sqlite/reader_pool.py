"""Readers have connections of their own: they see the last commit as it was when they began, and hold no writer up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.storage.sql.sqlite.connection import SqliteConnection
from adapters.storage.sql.sqlite.inline_reads import InlineReader, SlowStatements
from domain.kernel.errors import DomainError, Unavailable

IDLE_SNAPSHOT_S = 0.1
"""How long an idle lane may keep its old snapshot. Under load the next reader ends it in passing, without a hop of its own."""


class ReaderPool:
    """At most `size` lanes, opened when first needed, the most recently used one first (its cache is warm)."""

    def __init__(self, path: Path, *, size: int = 6, patience_s: float = 5.0, busy_ms: int = 5_000) -> None:
        self._path = path
        self._size = size
        self._acquire_timeout_s = patience_s
        self._busy_timeout_ms = busy_ms
        self._slots = asyncio.Semaphore(size)
        self._idle: list[SqliteConnection] = []
        self._slow_statements = SlowStatements()
        self._closed = False
        self._snapshot_task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[SqliteConnection]:
        """A lane inside a snapshot, which begins with the first statement. Raises Unavailable when none is free in time."""
        await self._acquire_slot()
        try:
            if self._closed:
                raise Unavailable("The service is stopping. Try again in a moment.")
            lane = self._idle.pop() if self._idle else await self._open()
            lane.defer_control("BEGIN")
            try:
                yield lane
            finally:
                await self._release(lane)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Let readers end, then close every lane."""
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
            await self._slots.acquire()  # free at once: a bound would cost more than the wait
            return
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable("Too many reads are under way. Try again in a moment.") from None

    async def _open(self) -> SqliteConnection:
        return await InlineReader.open_inline(self._path, busy_ms=self._busy_timeout_ms, kinds=self._slow_statements)

    async def _release(self, lane: SqliteConnection) -> None:
        if lane.transaction_lost:
            await lane.close()
            return
        lane.defer_control("ROLLBACK")
        self._idle.append(lane)
        if self._snapshot_task is None or self._snapshot_task.done():
            self._snapshot_task = asyncio.create_task(self._end_idle_snapshots(), name="storage-readers")

    async def _end_idle_snapshots(self) -> None:
        """End the snapshots of lanes that nobody took again; an old snapshot keeps the write-ahead log from being reused."""
        while any(lane.has_deferred for lane in self._idle):
            await asyncio.sleep(IDLE_SNAPSHOT_S)
            for lane in [lane for lane in self._idle if lane.has_deferred]:
                try:
                    await lane.flush()
                except DomainError:
                    if lane in self._idle:
                        self._idle.remove(lane)
                        await lane.close()
