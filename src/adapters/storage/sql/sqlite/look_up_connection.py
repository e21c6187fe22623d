"""A reading connection, which looks up single rows without its thread.

The hop to the thread and back takes five times as long as SQLite needs for a row that it finds by its key. So a `LOOK_UP`
statement runs on the event loop while the thread has nothing to do. There it waits for no lock, and is interrupted after some
thousand steps; in both cases the thread repeats it. Such rows are read with almost every request, so their pages are in memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

from adapters.storage.sql.sql_session_port import Row
from adapters.storage.sql.sqlite.pipelined_connection import TransactionControlError
from adapters.storage.sql.sqlite.threaded_connection import SqliteConnection

PROGRESS_STEPS, MAX_PROGRESS = 2_500, 2
"""SQLite reports each 2,500 steps of its machine, counted over all uses of a statement; so a look-up takes 7,500 at most, about
0.3 ms. A row by its key takes fifty."""
IS_SERIALIZED = sqlite3.threadsafety == 3
"""Whether SQLite was compiled so that two threads may use a connection in turn."""


class SqliteLookUpConnection(SqliteConnection):
    _statements_in_thread = 0
    _waits_for_locks = True
    _progress = 0

    def try_look_up(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row] | None:
        if IS_SERIALIZED and not self._statements_in_thread and all(isinstance(one, str) for one in self._deferred):
            try:
                return self._look_up_at_once(sql, params)
            except TransactionControlError:
                self.transaction_lost = True
                self.failures += 1
                raise
            except sqlite3.Error:
                pass  # the thread waits for the lock, takes its time, or raises the error
        return None

    def _look_up_at_once(self, sql: str, params: Sequence[Any]) -> Sequence[Row]:
        if self._waits_for_locks:
            self._deferred.appendleft("PRAGMA busy_timeout=0")
            self._waits_for_locks = False
        self._progress = 0
        self._raw.set_progress_handler(self._is_too_long, PROGRESS_STEPS)
        try:
            return self._raw.execute(sql, params).fetchall()
        finally:
            self._raw.set_progress_handler(None, 0)

    async def fetch(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        """In the thread. If the caller is cancelled, the thread finishes the statement, and no look-up runs until then."""
        if not self._waits_for_locks:
            self._deferred.appendleft(f"PRAGMA busy_timeout={self._busy_timeout_ms}")
            self._waits_for_locks = True
        self._statements_in_thread += 1
        task = asyncio.ensure_future(super().fetch(sql, params))
        task.add_done_callback(self._on_fetched)
        return await asyncio.shield(task)

    def _on_fetched(self, done: asyncio.Future[Sequence[Row]]) -> None:
        self._statements_in_thread -= 1
        if not done.cancelled():
            done.exception()  # the caller may be gone

    def _is_too_long(self) -> bool:
        self._progress += 1
        return self._progress > MAX_PROGRESS
