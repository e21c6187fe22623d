"""Group commit: one writer, many transactions, one commit, because each commit of SQLite waits for the disk.

A task passes the writing connection from one transaction to the next. Each transaction is a savepoint inside an outer
transaction. Waiting transactions join until `MAX_TRANSACTIONS` or `MAX_GROUP_S` is reached; then the task commits once, and only
then do the transactions return to their callers. A transaction that fails, with its deferred statements too, rolls back to its
own savepoint and does not affect the others. A commit that fails fails them all. Every wait has a timeout: for the connection,
for a statement, for the commit.

Accounts follow one another in a circle, and what the service does by itself counts as one more of them. So a transaction waits
for one of each other account, and not for all that another account has asked for.

A background transaction begins a group and takes turns with the groups of the others. So nobody's commit waits for one that
came later, and nobody waits for two of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from time import monotonic

from adapters.storage.errors import NestedWriteError, run_callbacks
from adapters.storage.sql.sqlite.connections import (
    SAVEPOINT,
    DatabaseFileIdentityCheck,
    DeferredStatementsOutcome,
    SqliteConnection,
    WalCheckpointer,
)
from domain.kernel.errors import DomainError, Unavailable

MAX_TRANSACTIONS = 256
MAX_GROUP_S = 0.02
"""A growing group closes after 20 ms, about two commits of a slow disk: waiting must not cost more than it saves."""
MAX_QUEUED = 20_000

_BUSY = "The database is busy. Try again in a moment."
_STOPPING = "The service is stopping. Try again in a moment."
_UNCERTAIN = "The database has not answered, so this may or may not have been saved. Check before you try again."


class WriteTicket:
    """One transaction's states: granted → ended (to commit or not) → committed."""

    __slots__ = ("after_commit_calls", "committed", "deferred", "ended", "granted", "owner")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.granted: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[bool] = loop.create_future()
        self.committed: asyncio.Future[None] = loop.create_future()
        self.after_commit_calls: list[Callable[[], None]] = []
        self.deferred = DeferredStatementsOutcome()
        self.owner = asyncio.current_task()

    def end(self, keep: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(keep)

    def resolve(self, failure: Exception | None) -> None:
        if self.committed.done():
            return
        if failure is None:
            self.committed.set_result(None)
        else:
            self.committed.set_exception(failure)
            self.committed.exception()  # mark it as retrieved: a cancelled caller does not read it


class _TicketsByAccount:
    """Waiting transactions: those of one account in their order, the accounts in a circle."""

    def __init__(self) -> None:
        self._by_account: OrderedDict[str, deque[WriteTicket]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[WriteTicket]:
        return (ticket for tickets in self._by_account.values() for ticket in tickets)

    def append(self, account: str, ticket: WriteTicket) -> None:
        tickets = self._by_account.get(account)
        if tickets is None:
            tickets = self._by_account[account] = deque()
        tickets.append(ticket)
        self._count += 1

    def popleft(self) -> WriteTicket:
        account, tickets = next(iter(self._by_account.items()))
        ticket = tickets.popleft()
        self._count -= 1
        if tickets:
            self._by_account.move_to_end(account)
        else:
            del self._by_account[account]
        return ticket


async def _wait_or_fail(future: asyncio.Future[None], seconds: float, failure: DomainError) -> None:
    """Await the future, or raise `failure` after `seconds`. Cheaper than `asyncio.timeout`; runs twice per transaction."""
    timer = future.get_loop().call_later(seconds, _set_failure, future, failure)
    try:
        await future
    finally:
        timer.cancel()


def _set_failure(future: asyncio.Future[None], failure: DomainError) -> None:
    if not future.done():
        future.set_exception(failure)


class GroupCommitWriter:
    """`acquire_timeout_s` limits the wait for the connection, `commit_timeout_s` that for the commit. The caller limits the
    rest."""

    def __init__(
        self,
        connection: SqliteConnection,
        files: DatabaseFileIdentityCheck,
        checkpoints: WalCheckpointer,
        *,
        acquire_timeout_s: float = 5.0,
        commit_timeout_s: float = 30.0,
    ) -> None:
        self.connection = connection
        self._files = files
        self._checkpoints = checkpoints
        self.commit_count = 0
        self.transaction_count = 0
        self._acquire_timeout_s = acquire_timeout_s
        self._commit_timeout_s = commit_timeout_s
        self._queue = _TicketsByAccount()
        self._background = _TicketsByAccount()
        self._is_background_turn = True
        self._wake = asyncio.Event()
        self._current: WriteTicket | None = None
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="storage-writer")

    async def stop(self) -> None:
        """Accept no more transactions, finish the waiting ones and the checkpoint, each within `acquire_timeout_s`, and stop."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._acquire_timeout_s)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._checkpoints.stop(self._acquire_timeout_s)
        for ticket in (*self._queue, *self._background):
            _set_failure(ticket.granted, Unavailable(_STOPPING))

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def begin(self, account: str = "", *, background: bool = False) -> WriteTicket:
        """Wait for the writing connection. `account`: whose request it is; empty for the service itself. Raises Unavailable after
        the timeout."""
        current = self._current
        if current is not None and not current.ended.done() and current.owner is asyncio.current_task():
            raise NestedWriteError
        if self._closing or not self.is_running:
            raise Unavailable(_STOPPING)
        queue = self._background if background else self._queue
        if len(queue) >= MAX_QUEUED:
            raise Unavailable("Too many writes are waiting for the database. Try again in a moment.")
        ticket = WriteTicket(asyncio.get_running_loop())
        queue.append(account, ticket)
        self._wake.set()
        try:
            await _wait_or_fail(ticket.granted, self._acquire_timeout_s, Unavailable(_BUSY))
        except BaseException:
            ticket.end(keep=False)
            raise
        return ticket

    async def wait_committed(self, ticket: WriteTicket) -> None:
        """Wait until the transaction is durable. Raises Unavailable if it is not, or if that is unknown."""
        await _wait_or_fail(ticket.committed, self._commit_timeout_s, Unavailable(_UNCERTAIN))

    async def _run(self) -> None:
        while True:
            while not (self._queue or self._background):
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            group: list[WriteTicket] = []
            try:
                intact = await self._collect(group)
                await self._commit(group, intact=intact)
            finally:
                failure = Unavailable("The service stopped before this was saved. Try again in a moment.")
                for ticket in group:
                    ticket.resolve(failure)

    async def _collect(self, group: list[WriteTicket]) -> bool:
        """Run the waiting transactions one after the other. False if the outer transaction was lost."""
        self.connection.defer_control("BEGIN IMMEDIATE")
        deadline = monotonic() + MAX_GROUP_S
        if in_background := self._pop_background():
            if not await self._run_in(group, in_background):
                return False
            deadline = monotonic() + MAX_GROUP_S  # those who waited for it join
        while self._queue:
            if not await self._run_in(group, self._queue.popleft()):
                return False
            if len(group) >= MAX_TRANSACTIONS or monotonic() > deadline:
                break
        return True

    def _pop_background(self) -> WriteTicket | None:
        """The background transaction that begins this group."""
        waits = bool(self._background) and (self._is_background_turn or not self._queue)
        self._is_background_turn = not waits
        return self._background.popleft() if waits else None

    async def _run_in(self, group: list[WriteTicket], ticket: WriteTicket) -> bool:
        """Run the transaction as a part of the group, unless its caller waits no more. False if the outer transaction was
        lost."""
        if ticket.granted.done():
            return True
        if not await self._run_transaction(ticket) or self.connection.transaction_lost:
            group.append(ticket)
            return False
        if ticket.ended.result():
            group.append(ticket)
        return True

    async def _run_transaction(self, ticket: WriteTicket) -> bool:
        """Grant the ticket and wait until it ends. False if its savepoint could not be rolled back."""
        self.connection.defer_control(f"SAVEPOINT {SAVEPOINT}")
        self._current = ticket
        ticket.granted.set_result(None)
        try:
            keep = await ticket.ended
        finally:
            self._current = None
        if keep:
            self.connection.defer_control(f"RELEASE {SAVEPOINT}")
            return True
        if self.connection.transaction_lost:
            return False
        try:
            await self.connection.fetch(f"ROLLBACK TO {SAVEPOINT}")
        except (DomainError, sqlite3.Error):
            return False
        self.connection.defer_control(f"RELEASE {SAVEPOINT}")
        return True

    async def _commit(self, group: list[WriteTicket], *, intact: bool) -> None:
        failure: DomainError | None = None
        try:
            if not intact:
                raise Unavailable("The database rolled the transaction back. Try again in a moment.")
            if group:
                self._files.check()
                await self.connection.fetch("COMMIT")
                self._files.remember()
                self._files.check()  # again: what was committed to a file that is gone by now is not acknowledged
            else:
                await self.connection.fetch("ROLLBACK")
        except (DomainError, sqlite3.Error) as error:
            failure = Unavailable(f"The database could not save this ({error}). Try again in a moment.")
            await self._roll_back_group()
        self._checkpoints.on_commit()
        self.commit_count += 1
        self.transaction_count += len(group)
        for ticket in group:
            refused = ticket.deferred.error
            if failure is None and refused is None:
                run_callbacks(ticket.after_commit_calls)
            ticket.resolve(failure if refused is None else self.connection.translate(refused))

    async def _roll_back_group(self) -> None:
        """Leave no outer transaction open."""
        self.connection.reset()
        with contextlib.suppress(DomainError, sqlite3.Error):
            await self.connection.fetch("ROLLBACK")
