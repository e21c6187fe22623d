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
from adapters.storage.sql.sqlite.connection import (
    RETRYABLE_ERRORS,
    PipelinedConnection,
    SqliteConnection,
    TransactionControlError,
    translate_error,
)

PROGRESS_HANDLER_STEPS = 1_000
MAX_PROGRESS_CALLS = 2
"""A third tick is one too many, so 2,000 to 3,000 steps: a tenth of a millisecond. SQLite counts through all runs of a statement
it keeps, so the first tick of a run may come early."""
SLOW_STATEMENT_CALLS = 50
"""So many times a kind of statement that took too long goes to the thread before it is tried here again."""
SLOW_READ_S, INLINE_PAUSE_S = 0.05, 5.0
"""A read here that took longer than the first waited for something; then none is begun here for the second."""


class SlowStatements:
    """Statements that took too long, and how often they are still to go to the thread. Shared by the readers of a database."""

    def __init__(self) -> None:
        self._remaining_calls: dict[str, int] = {}
        self._paused_until = 0.0

    def record_duration(self, began: float) -> None:
        now = perf_counter()
        if now - began > SLOW_READ_S:
            self._paused_until = now + INLINE_PAUSE_S

    def is_slow(self, sql: str) -> bool:
        if self._paused_until and perf_counter() < self._paused_until:
            return True
        left = self._remaining_calls.get(sql, 0)
        if left == 1:
            del self._remaining_calls[sql]
        elif left:
            self._remaining_calls[sql] = left - 1
        return left > 0

    def mark_slow(self, sql: str) -> None:
        self._remaining_calls[sql] = SLOW_STATEMENT_CALLS


class InlineReader(SqliteConnection):
    def __init__(self, connection: aiosqlite.Connection, raw: PipelinedConnection) -> None:
        super().__init__(connection, raw)
        self._slow_statements = SlowStatements()
        self._busy_timeout_ms = 0
        self._progress_calls = 0
        self._thread_idle = False  # the thread has nothing of ours in hand; a wait that was given up leaves it unknown
        self._unbounded = True  # the connection is without bounds, as the thread wants it

    @classmethod
    async def open_inline(cls, path: Path, *, busy_ms: int, kinds: SlowStatements) -> InlineReader:
        lane = await cls.open(path, reader=True, busy_ms=busy_ms)
        lane._slow_statements, lane._busy_timeout_ms = kinds, busy_ms
        return lane

    async def fetch(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        if self._thread_idle and not self._slow_statements.is_slow(sql):
            rows = self._read_inline(sql, params)
            if rows is not None:
                return rows
        if self._thread_idle:
            self._remove_limits()
        self._thread_idle = False
        try:
            rows = await super().fetch(sql, params)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._thread_idle = True
            raise
        self._thread_idle = True
        return rows

    def _read_inline(self, sql: str, params: Sequence[Any]) -> Sequence[Row] | None:
        """None when it came to a bound. Raises as `fetch` does."""
        if self._unbounded:
            self._apply_limits()
        self._progress_calls = 0
        began = perf_counter()
        try:
            return self._raw.execute(sql, params).fetchall()
        except TransactionControlError:
            self.transaction_lost = True
            raise
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if not name.startswith(RETRYABLE_ERRORS):
                raise translate_error(error) from error
            if name == "SQLITE_INTERRUPT":
                self._slow_statements.mark_slow(sql)
            return None
        finally:
            self._slow_statements.record_duration(began)

    def _on_progress(self) -> bool:
        """True ends the statement."""
        self._progress_calls += 1
        return self._progress_calls > MAX_PROGRESS_CALLS

    def _apply_limits(self) -> None:
        """The bound last: the pragma's own steps count as well, against what the read before had left of it."""
        self._set_busy_timeout(0)
        self._raw.set_progress_handler(self._on_progress, PROGRESS_HANDLER_STEPS)
        self._unbounded = False

    def _remove_limits(self) -> None:
        if not self._unbounded:
            self._raw.set_progress_handler(None, 0)
            self._set_busy_timeout(self._busy_timeout_ms)
            self._unbounded = True

    def _set_busy_timeout(self, ms: int) -> None:
        self._raw.execute_immediately(f"PRAGMA busy_timeout={ms}")
