"""SQLite: one writer with group commit, readers apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.errors import ReadOnlyTransactionError, TransactionClosedError
from adapters.storage.sql.bulk_insert import BulkStatement
from adapters.storage.sql.session import SQLITE, Query, Row
from adapters.storage.sql.sqlite.connection import DeferredRead, DeferredWrite, SqliteConnection, compile_statement
from adapters.storage.sql.sqlite.group_commit import GroupCommitWriter, WriteTicket
from adapters.storage.sql.sqlite.reader_pool import ReaderPool
from domain.kernel.errors import Unavailable

_TIMED_OUT = "The database does not answer, or this was too much at once; nothing of it was saved. Try again later."


EARLY_FLUSH_ROWS = 32
"""Rows that are worth a hop of their own: the thread writes them while what comes next is made."""


class SqliteSession:
    dialect = SQLITE

    def __init__(self, lane: SqliteConnection, turn: WriteTicket | None) -> None:
        self._connection = lane
        self._ticket = turn
        self._closed = False
        self._deferred: list[DeferredWrite | DeferredRead] = []
        self._flush_task: asyncio.Task[None] | None = None

    @property
    def writable(self) -> bool:
        return self._ticket is not None

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open()
        return await self._fetch(statement, params)

    async def read_batch(self, *questions: Query) -> Sequence[Sequence[Row]]:
        self._require_open()
        *others, (statement, params) = questions
        asked: list[DeferredRead] = []
        for other, its in others:
            prepared = compile_statement(other, its)
            asked.append(DeferredRead(prepared.sql, prepared.bind(its)))
            self._defer(asked[-1])
        last = await self._fetch(statement, params)
        return [*(one.rows for one in asked), last]

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open(writing=True)
        return await self._fetch(statement, params)

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        self._require_open(writing=True)
        if not rows:
            return
        compiled = compile_statement(statement, rows[0])
        params = [compiled.bind(row) for row in rows]
        if defer:
            self._defer(DeferredWrite(compiled.sql, params))
            return
        await self._wait_for_flush()
        await self._connection.execute_many(compiled.sql, params)
        self._deferred.clear()

    async def bulk_write(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> None:
        self._require_open(writing=True)
        if rows:
            self._defer(DeferredWrite(statement.sqlite_sql, statement.sqlite_params(rows)))
        if len(rows) >= EARLY_FLUSH_ROWS and (self._flush_task is None or self._flush_task.done()):
            await self._wait_for_flush()
            self._flush_task = asyncio.create_task(self._connection.flush(), name="storage-flush")
            self._flush_task.add_done_callback(_retrieve_exception)

    async def flush(self) -> None:
        """Pay what is still owed: the transaction is about to end."""
        await self._wait_for_flush()
        if self._deferred:
            await self._connection.flush()
            self._deferred.clear()

    def cancel_deferred(self) -> None:
        """The transaction is not kept, so nothing of it may be paid by the next one."""
        for one in self._deferred:
            one.cancelled = True

    async def _wait_for_flush(self) -> None:
        """What is under way has been written. Raises what the database has against it."""
        if self._flush_task is not None:
            under_way, self._flush_task = self._flush_task, None
            await under_way

    def _defer(self, one: DeferredWrite | DeferredRead) -> None:
        self._deferred.append(one)
        self._connection.defer(one)

    async def _fetch(self, statement: ClauseElement, params: Mapping[str, Any]) -> Sequence[Row]:
        prepared = compile_statement(statement, params)
        await self._wait_for_flush()
        rows = await self._connection.fetch(prepared.sql, prepared.bind(params))
        self._deferred.clear()
        return rows

    def after_commit(self, call: Callable[[], None]) -> None:
        self._require_open(writing=True)
        if self._ticket is not None:
            self._ticket.after_commit_calls.append(call)

    def _require_open(self, *, writing: bool = False) -> None:
        if self._closed:
            raise TransactionClosedError
        if writing and self._ticket is None:
            raise ReadOnlyTransactionError


def _retrieve_exception(done: asyncio.Task[None]) -> None:
    """Where its transaction was given up, nobody else does."""
    if not done.cancelled():
        done.exception()


class SqliteBackend:
    """Bounds: `patience_s` for a turn or a reader, `hold_s` for one transaction and for its commit, `busy_ms` for another
    process holding the lock."""

    def __init__(
        self, path: Path, *, readers: int = 6, patience_s: float = 5.0, hold_s: float = 30.0, busy_ms: int = 5_000
    ) -> None:
        self._path = path
        self._reader_count = readers
        self._acquire_timeout_s = patience_s
        self._transaction_timeout_s = hold_s
        self._busy_timeout_ms = busy_ms
        self._writer: GroupCommitWriter | None = None
        self._readers: ReaderPool | None = None

    async def start(self) -> None:
        lane = await SqliteConnection.open(self._path, reader=False, busy_ms=self._busy_timeout_ms)
        self._writer = GroupCommitWriter(lane, patience_s=self._acquire_timeout_s, settle_s=self._transaction_timeout_s)
        self._readers = ReaderPool(
            self._path, size=self._reader_count, patience_s=self._acquire_timeout_s, busy_ms=self._busy_timeout_ms
        )
        self._writer.start()

    async def stop(self) -> None:
        if self._readers is not None:
            await self._readers.close()
        if self._writer is not None:
            await self._writer.stop()
            await self._writer.connection.close()
        self._readers = self._writer = None

    @property
    def writer(self) -> GroupCommitWriter:
        if self._writer is None:
            raise Unavailable("The database is not open. Start the service first.")
        return self._writer

    async def check(self) -> None:
        """Raises Unavailable when reading or writing would."""
        if not self.writer.is_running:
            raise Unavailable("The database's writer has ended. Restart the service; its log says why.")
        async with self.read():
            pass
        async with self.write():
            pass

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqliteSession]:
        writer = self.writer
        turn = await writer.begin()
        session = SqliteSession(writer.connection, turn)
        bound = asyncio.timeout(self._transaction_timeout_s)
        try:
            async with bound:
                yield session
                await session.flush()
        except BaseException as error:
            session.cancel_deferred()
            turn.end(keep=False)
            if isinstance(error, TimeoutError) and bound.expired():
                raise Unavailable(_TIMED_OUT) from error
            raise
        finally:
            session.close()
        turn.end(keep=True)
        await writer.wait_committed(turn)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[SqliteSession]:
        if self._readers is None:
            raise Unavailable("The database is not open. Start the service first.")
        async with self._readers.connection() as lane:
            session = SqliteSession(lane, None)
            bound = asyncio.timeout(self._transaction_timeout_s)
            try:
                async with bound:
                    yield session
            except TimeoutError as error:
                if bound.expired():
                    raise Unavailable(_TIMED_OUT) from error
                raise
            finally:
                session.cancel_deferred()
                session.close()
