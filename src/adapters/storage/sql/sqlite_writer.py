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

from adapters.storage.after_commit import run_all
from adapters.storage.refusals import NestedWrite
from adapters.storage.sql.sqlite_lane import Lane
from domain.kernel.errors import DomainError, Unavailable

MAX_TRANSACTIONS = 256
MAX_S = 0.02
"""A group that still grows closes after 20 ms, about two commits of a slow disk: joining must not cost more than it saves."""
MAX_WAITING = 20_000

_BUSY = "The database is busy and did not take this in time. Try again in a moment."
_STOPPING = "The service is stopping. Try again in a moment."
_UNCERTAIN = "The database has not answered: this may or may not have been saved. Look before you try again."


class Turn:
    """One transaction's way through the writer: granted → ended (kept or not) → settled."""

    __slots__ = ("calls", "ended", "granted", "holder", "settled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.granted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()
        self.settled: asyncio.Future[None] = loop.create_future()
        self.calls: list[Callable[[], None]] = []
        self.holder = asyncio.current_task()

    def end(self, keep: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(keep)

    def settle(self, failure: DomainError | None) -> None:
        if self.settled.done():
            return
        if failure is None:
            self.settled.set_result(None)
        else:
            self.settled.set_exception(failure)
            self.settled.exception()  # looked at: whoever was cancelled meanwhile leaves nothing behind


async def _within(future: asyncio.Future[None], seconds: float, failure: DomainError) -> None:
    """Await the future, or raise `failure`. As `asyncio.timeout`, without its price: this runs twice a transaction."""
    overdue = future.get_loop().call_later(seconds, _fail, future, failure)
    try:
        await future
    finally:
        overdue.cancel()


def _fail(future: asyncio.Future[None], failure: DomainError) -> None:
    if not future.done():
        future.set_exception(failure)


class GroupWriter:
    """`patience_s` bounds the wait for the turn, `settle_s` the wait for the commit. Whoever has the turn bounds itself."""

    def __init__(self, lane: Lane, *, patience_s: float = 5.0, settle_s: float = 30.0) -> None:
        self.lane = lane
        self.commits = 0
        self.transactions = 0
        self._patience_s = patience_s
        self._settle_s = settle_s
        self._waiting: deque[Turn] = deque()
        self._bell = asyncio.Event()
        self._holding: Turn | None = None
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="storage-writer")

    async def stop(self) -> None:
        """Take nothing more, finish what waits, and end, within `patience_s`."""
        self._closing = True
        self._bell.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._patience_s)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for turn in self._waiting:
            _fail(turn.granted, Unavailable(_STOPPING))

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def begin(self) -> Turn:
        """Wait for the turn. Raises Unavailable when it does not come in time."""
        holding = self._holding
        if holding is not None and not holding.ended.done() and holding.holder is asyncio.current_task():
            raise NestedWrite
        if self._closing or not self.alive:
            raise Unavailable(_STOPPING)
        if len(self._waiting) >= MAX_WAITING:
            raise Unavailable("Too many writers wait for the database. Try again in a moment.")
        turn = Turn(asyncio.get_running_loop())
        self._waiting.append(turn)
        self._bell.set()
        try:
            await _within(turn.granted, self._patience_s, Unavailable(_BUSY))
        except BaseException:
            turn.end(keep=False)
            raise
        return turn

    async def settled(self, turn: Turn) -> None:
        """Wait until the turn's transaction is durable. Raises Unavailable when it is not, or nobody can say."""
        await _within(turn.settled, self._settle_s, Unavailable(_UNCERTAIN))

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._bell.clear()
                await self._bell.wait()
            members: list[Turn] = []
            try:
                whole = await self._gather(members)
                await self._commit(members, whole=whole)
            finally:
                lost = Unavailable("The service stopped before this was saved. Try again in a moment.")
                for turn in members:
                    turn.settle(lost)

    async def _gather(self, members: list[Turn]) -> bool:
        """Serve who waits, one after the other. False when the outer transaction was lost on the way."""
        self.lane.owe("BEGIN IMMEDIATE")
        closes = monotonic() + MAX_S
        while self._waiting:
            turn = self._waiting.popleft()
            if turn.granted.done():
                continue
            if not await self._serve(turn) or self.lane.lost:
                members.append(turn)
                return False
            if turn.ended.result():
                members.append(turn)
            if len(members) >= MAX_TRANSACTIONS or monotonic() > closes:
                break
        return True

    async def _serve(self, turn: Turn) -> bool:
        """Give the turn and wait for its end. False when its savepoint could not be rolled back to."""
        self.lane.owe("SAVEPOINT turn")
        self._holding = turn
        turn.granted.set_result(None)
        try:
            keep = await turn.ended
        finally:
            self._holding = None
        if keep:
            self.lane.owe("RELEASE turn")
            return True
        if self.lane.lost:
            return False
        try:
            await self.lane.fetch("ROLLBACK TO turn")
        except (DomainError, sqlite3.Error):
            return False
        self.lane.owe("RELEASE turn")
        return True

    async def _commit(self, members: list[Turn], *, whole: bool) -> None:
        failure: DomainError | None = None
        try:
            if not whole:
                raise Unavailable("The database gave up the transaction. Try again in a moment.")
            await self.lane.fetch("COMMIT" if members else "ROLLBACK")
        except (DomainError, sqlite3.Error) as error:
            failure = Unavailable(f"The database could not save this ({error}). Try again in a moment.")
            await self._abandon()
        self.commits += 1
        self.transactions += len(members)
        for turn in members:
            if failure is None:
                run_all(turn.calls)
            turn.settle(failure)

    async def _abandon(self) -> None:
        """Leave no outer transaction open, whatever it takes."""
        self.lane.abandon()
        with contextlib.suppress(DomainError, sqlite3.Error):
            await self.lane.fetch("ROLLBACK")
