"""Readers have connections of their own: they see the last commit as it was when they began, and hold no writer up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.storage.sql.sqlite_glance import GlancingLane, Kinds
from adapters.storage.sql.sqlite_lane import Lane
from domain.kernel.errors import DomainError, Unavailable

SWEEP_S = 0.1
"""How long an idle lane may keep its old snapshot. Under load the next reader ends it in passing, without a hop of its own."""


class Readers:
    """At most `size` lanes, opened when first needed, the most recently used one first (its cache is warm)."""

    def __init__(self, path: Path, *, size: int = 6, patience_s: float = 5.0, busy_ms: int = 5_000) -> None:
        self._path = path
        self._size = size
        self._patience_s = patience_s
        self._busy_ms = busy_ms
        self._free = asyncio.Semaphore(size)
        self._idle: list[Lane] = []
        self._kinds = Kinds()
        self._closed = False
        self._sweeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[Lane]:
        """A lane inside a snapshot, which begins with the first statement. Raises Unavailable when none is free in time."""
        await self._acquire()
        try:
            if self._closed:
                raise Unavailable("The service is stopping. Try again in a moment.")
            lane = self._idle.pop() if self._idle else await self._open()
            lane.owe("BEGIN")
            try:
                yield lane
            finally:
                await self._give_back(lane)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Let readers end, then close every lane."""
        for _ in range(self._size):
            await self._acquire()
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        while self._idle:
            await self._idle.pop().close()
        for _ in range(self._size):
            self._free.release()

    async def _acquire(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # free at once: a bound would cost more than the wait
            return
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable("Too many reads are under way. Try again in a moment.") from None

    async def _open(self) -> Lane:
        return await GlancingLane.glancing(self._path, busy_ms=self._busy_ms, kinds=self._kinds)

    async def _give_back(self, lane: Lane) -> None:
        if lane.lost:
            await lane.close()
            return
        lane.owe("ROLLBACK")
        self._idle.append(lane)
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep(), name="storage-readers")

    async def _sweep(self) -> None:
        """End the snapshots of lanes that nobody took again; an old snapshot keeps the write-ahead log from being reused."""
        while any(lane.owes for lane in self._idle):
            await asyncio.sleep(SWEEP_S)
            for lane in [lane for lane in self._idle if lane.owes]:
                try:
                    await lane.settle()
                except DomainError:
                    if lane in self._idle:
                        self._idle.remove(lane)
                        await lane.close()
