"""A reader's lane that answers a small question on the spot, in the thread that asks.

Most reads are a few rows by their key: some ten microseconds of work, behind a hop to a thread and back that costs ten times as
much, twice over when another thread holds the interpreter. So a statement is begun here, under two bounds: it may take so many
steps of SQLite's machine, and it may not wait for a lock. One that comes to either bound is begun anew in the lane's thread, on
the same connection and in the same snapshot, without bounds; its kind goes there at once for a while.

What no bound ends is a page that has to come from a disk. When one was slow in coming, all kinds go to the threads for a while: a
disk that stands still holds the loop once, not at each read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import aiosqlite

from adapters.storage.sql.session import Row
from adapters.storage.sql.sqlite_lane import BOUNDS, ControlLost, Lane, Paying, told

TICK_STEPS = 1_000
MOST_TICKS = 2
"""A third tick is one too many, so 2,000 to 3,000 steps: a tenth of a millisecond. SQLite counts through all runs of a statement
it keeps, so the first tick of a run may come early."""
LONG_FOR = 50
"""So many times a kind of statement that took too long goes to the thread before it is tried here again."""
SLOW_S, SPARED_S = 0.05, 5.0
"""A read here that took longer than the first waited for something; then none is begun here for the second."""


class Kinds:
    """Statements that took too long, and how often they are still to go to the thread. Shared by the readers of a database."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._spared_until = 0.0

    def took(self, began: float) -> None:
        now = perf_counter()
        if now - began > SLOW_S:
            self._spared_until = now + SPARED_S

    def is_long(self, sql: str) -> bool:
        if self._spared_until and perf_counter() < self._spared_until:
            return True
        left = self._left.get(sql, 0)
        if left == 1:
            del self._left[sql]
        elif left:
            self._left[sql] = left - 1
        return left > 0

    def was_long(self, sql: str) -> None:
        self._left[sql] = LONG_FOR


class GlancingLane(Lane):
    def __init__(self, connection: aiosqlite.Connection, raw: Paying) -> None:
        super().__init__(connection, raw)
        self._kinds = Kinds()
        self._busy_ms = 0
        self._ticks = 0
        self._alone = False  # the thread has nothing of ours in hand; a wait that was given up leaves it unknown
        self._patient = True  # the connection is without bounds, as the thread wants it

    @classmethod
    async def glancing(cls, path: Path, *, busy_ms: int, kinds: Kinds) -> GlancingLane:
        lane = await cls.open(path, reader=True, busy_ms=busy_ms)
        lane._kinds, lane._busy_ms = kinds, busy_ms
        return lane

    async def fetch(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        if self._alone and not self._kinds.is_long(sql):
            rows = self._glance(sql, params)
            if rows is not None:
                return rows
        if self._alone:
            self._be_patient()
        self._alone = False
        try:
            rows = await super().fetch(sql, params)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._alone = True
            raise
        self._alone = True
        return rows

    def _glance(self, sql: str, params: Sequence[Any]) -> Sequence[Row] | None:
        """None when it came to a bound. Raises as `fetch` does."""
        if self._patient:
            self._be_quick()
        self._ticks = 0
        began = perf_counter()
        try:
            return self._raw.execute(sql, params).fetchall()
        except ControlLost:
            self.lost = True
            raise
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if not name.startswith(BOUNDS):
                raise told(error) from error
            if name == "SQLITE_INTERRUPT":
                self._kinds.was_long(sql)
            return None
        finally:
            self._kinds.took(began)

    def _tick(self) -> bool:
        """True ends the statement."""
        self._ticks += 1
        return self._ticks > MOST_TICKS

    def _be_quick(self) -> None:
        """The bound last: the pragma's own steps count as well, against what the read before had left of it."""
        self._wait_for_locks(0)
        self._raw.set_progress_handler(self._tick, TICK_STEPS)
        self._patient = False

    def _be_patient(self) -> None:
        if not self._patient:
            self._raw.set_progress_handler(None, 0)
            self._wait_for_locks(self._busy_ms)
            self._patient = True

    def _wait_for_locks(self, ms: int) -> None:
        self._raw.at_once(f"PRAGMA busy_timeout={ms}")
