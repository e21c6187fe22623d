"""One writer, many transactions, one commit: SQLite's commit waits for the disk, so those who come together share it.

A task of its own hands the writing connection from one transaction to the next. Each is a savepoint inside an outer
transaction; whoever waits joins until `MAX_TRANSACTIONS` or `MAX_S` is reached; then comes one COMMIT, and only after it has
returned do the transactions return to their callers. A transaction that fails rolls back to its own savepoint and takes nobody
along. A commit that fails fails them all. Nobody waits without end: for the turn, for a statement, for the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable
from time import monotonic

from adapters.storage.after_commit import run_callbacks
from adapters.storage.errors import NestedWriteError
from adapters.storage.sql.sqlite.connection import SqliteConnection
from domain.kernel.errors import DomainError, Unavailable

MAX_TRANSACTIONS = 256
MAX_GROUP_S = 0.02
"""A group that still grows closes after 20 ms, about two commits of a slow disk: joining must not cost more than it saves."""
MAX_QUEUED = 20_000

_BUSY = "The database is busy and did not take this in time. Try again in a moment."
_STOPPING = "The service is stopping. Try again in a moment."
_UNCERTAIN = "The database has not answered: this may or may not have been saved. Look before you try again."


class WriteTicket:
    """One transaction's way through the writer: granted → ended (kept or not) → settled."""

    __slots__ = ("after_commit_calls", "committed", "ended", "granted", "owner")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.granted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()
        self.committed: asyncio.Future[None] = loop.create_future()
        self.after_commit_calls: list[Callable[[], None]] = []
        self.owner = asyncio.current_task()

    def end(self, keep: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(keep)

    def resolve(self, failure: DomainError | None) -> None:
        if self.committed.done():
            return
        if failure is None:
            self.committed.set_result(None)
        else:
            self.committed.set_exception(failure)
            self.committed.exception()  # looked at: whoever was cancelled meanwhile leaves nothing behind


async def _wait_or_fail(future: asyncio.Future[None], seconds: float, failure: DomainError) -> None:
    """Await the future, or raise `failure`. As `asyncio.timeout`, without its price: this runs twice a transaction."""
    overdue = future.get_loop().call_later(seconds, _set_failure, future, failure)
    try:
        await future
    finally:
        overdue.cancel()


def _set_failure(future: asyncio.Future[None], failure: DomainError) -> None:
    if not future.done():
        future.set_exception(failure)


class GroupCommitWriter:
    """`patience_s` bounds the wait for the turn, `settle_s` the wait for the commit. Whoever has the turn bounds itself."""

    def __init__(self, lane: SqliteConnection, *, patience_s: float = 5.0, settle_s: float = 30.0) -> None:
        self.connection = lane
        self.commit_count = 0
        self.transaction_count = 0
        self._acquire_timeout_s = patience_s
        self._commit_timeout_s = settle_s
        self._queue: deque[WriteTicket] = deque()
        self._wake = asyncio.Event()
        self._current: WriteTicket | None = None
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="storage-writer")

    async def stop(self) -> None:
        """Take nothing more, finish what waits, and end, within `patience_s`."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._acquire_timeout_s)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for turn in self._queue:
            _set_failure(turn.granted, Unavailable(_STOPPING))

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def begin(self) -> WriteTicket:
        """Wait for the turn. Raises Unavailable when it does not come in time."""
        holding = self._current
        if holding is not None and not holding.ended.done() and holding.owner is asyncio.current_task():
            raise NestedWriteError
        if self._closing or not self.is_running:
            raise Unavailable(_STOPPING)
        if len(self._queue) >= MAX_QUEUED:
            raise Unavailable("Too many writers wait for the database. Try again in a moment.")
        turn = WriteTicket(asyncio.get_running_loop())
        self._queue.append(turn)
        self._wake.set()
        try:
            await _wait_or_fail(turn.granted, self._acquire_timeout_s, Unavailable(_BUSY))
        except BaseException:
            turn.end(keep=False)
            raise
        return turn

    async def wait_committed(self, turn: WriteTicket) -> None:
        """Wait until the turn's transaction is durable. Raises Unavailable when it is not, or nobody can say."""
        await _wait_or_fail(turn.committed, self._commit_timeout_s, Unavailable(_UNCERTAIN))

    async def _run(self) -> None:
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            members: list[WriteTicket] = []
            try:
                whole = await self._collect(members)
                await self._commit(members, whole=whole)
            finally:
                lost = Unavailable("The service stopped before this was saved. Try again in a moment.")
                for turn in members:
                    turn.resolve(lost)

    async def _collect(self, members: list[WriteTicket]) -> bool:
        """Serve who waits, one after the other. False when the outer transaction was lost on the way."""
        self.connection.defer_control("BEGIN IMMEDIATE")
        closes = monotonic() + MAX_GROUP_S
        while self._queue:
            turn = self._queue.popleft()
            if turn.granted.done():
                continue
            if not await self._run_transaction(turn) or self.connection.transaction_lost:
                members.append(turn)
                return False
            if turn.ended.result():
                members.append(turn)
            if len(members) >= MAX_TRANSACTIONS or monotonic() > closes:
                break
        return True

    async def _run_transaction(self, turn: WriteTicket) -> bool:
        """Give the turn and wait for its end. False when its savepoint could not be rolled back to."""
        self.connection.defer_control("SAVEPOINT turn")
        self._current = turn
        turn.granted.set_result(None)
        try:
            keep = await turn.ended
        finally:
            self._current = None
        if keep:
            self.connection.defer_control("RELEASE turn")
            return True
        if self.connection.transaction_lost:
            return False
        try:
            await self.connection.fetch("ROLLBACK TO turn")
        except (DomainError, sqlite3.Error):
            return False
        self.connection.defer_control("RELEASE turn")
        return True

    async def _commit(self, members: list[WriteTicket], *, whole: bool) -> None:
        failure: DomainError | None = None
        try:
            if not whole:
                raise Unavailable("The database gave up the transaction. Try again in a moment.")
            await self.connection.fetch("COMMIT" if members else "ROLLBACK")
        except (DomainError, sqlite3.Error) as error:
            failure = Unavailable(f"The database could not save this ({error}). Try again in a moment.")
            await self._roll_back_group()
        self.commit_count += 1
        self.transaction_count += len(members)
        for turn in members:
            if failure is None:
                run_callbacks(turn.after_commit_calls)
            turn.resolve(failure)

    async def _roll_back_group(self) -> None:
        """Leave no outer transaction open, whatever it takes."""
        self.connection.reset()
        with contextlib.suppress(DomainError, sqlite3.Error):
            await self.connection.fetch("ROLLBACK")
