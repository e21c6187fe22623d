"""SQLite: one writing connection with group commit, and separate reading connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.errors import ReadOnlyTransactionError, TransactionClosedError
from adapters.storage.sql.bulk_insert import BulkStatement
from adapters.storage.sql.db_session import SQLITE, Query, Row, WritePlan
from adapters.storage.sql.sqlite.connection import (
    DeferredQuery,
    DeferredReadThenWrite,
    DeferredWrite,
    SqliteConnection,
    compile_statement,
)
from adapters.storage.sql.sqlite.group_commit import GroupCommitWriter, WriteTicket
from adapters.storage.sql.sqlite.open_database_files import DatabaseFileIdentityCheck
from adapters.storage.sql.sqlite.reader_pool import ReaderPool
from adapters.storage.sql.sqlite.wal_checkpoints import WalCheckpointer
from adapters.storage.sql.write_probe import write_probe
from domain.kernel.errors import Unavailable

_TIMED_OUT = "The database did not answer in time, or the request was too large. Nothing was saved. Try again later."


EARLY_FLUSH_ROWS = 32
"""From this many rows on, a bulk write gets a thread hop of its own: the thread writes while the event loop goes on."""


class SqlitePendingQuery:
    def __init__(self, session: SqliteSession, read: DeferredQuery) -> None:
        self._session = session
        self._read = read

    async def rows(self) -> Sequence[Row]:
        if not self._read.done:
            await self._session.flush()
        return self._read.rows


class SqliteSession:
    dialect = SQLITE

    def __init__(self, connection: SqliteConnection, ticket: WriteTicket | None) -> None:
        self._connection = connection
        self._ticket = ticket
        self._closed = False
        self._deferred: list[DeferredWrite | DeferredQuery | DeferredReadThenWrite] = []
        self._flush_task: asyncio.Task[None] | None = None

    @property
    def writable(self) -> bool:
        return self._ticket is not None

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open()
        return await self._fetch(statement, params)

    async def read_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        self._require_open()
        *first_queries, (last_statement, last_params) = queries
        deferred: list[DeferredQuery] = []
        for statement, params in first_queries:
            compiled = compile_statement(statement, params)
            deferred.append(DeferredQuery(compiled.sql, compiled.bind(params)))
            self._defer(deferred[-1])
        last_rows = await self._fetch(last_statement, last_params)
        return [*(read.rows for read in deferred), last_rows]

    async def begin_read(self, statement: ClauseElement, **params: Any) -> SqlitePendingQuery:
        self._require_open()
        compiled = compile_statement(statement, params)
        read = DeferredQuery(compiled.sql, compiled.bind(params))
        self._defer(read)
        return SqlitePendingQuery(self, read)

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
        await self.bulk_write_all([(statement, rows)])

    async def bulk_write_all(self, writes: Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]) -> None:
        self._require_open(writing=True)
        longest = 0
        for statement, rows in writes:
            if rows:
                self._defer(DeferredWrite(statement.sqlite_sql, statement.sqlite_params(rows)))
                longest = max(longest, len(rows))
        if longest >= EARLY_FLUSH_ROWS and (self._flush_task is None or self._flush_task.done()):
            await self._wait_for_flush()
            self._flush_task = asyncio.create_task(self._connection.flush(), name="storage-flush")
            self._flush_task.add_done_callback(_retrieve_exception)

    async def read_then_write(self, statement: ClauseElement, plan: WritePlan, **params: Any) -> None:
        self._require_open(writing=True)
        compiled = compile_statement(statement, params)

        def in_thread(rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Sequence[Any]]]]:
            return ((bulk.sqlite_sql, bulk.sqlite_params(written)) for bulk, written in plan(rows) if written)

        self._defer(DeferredReadThenWrite(compiled.sql, compiled.bind(params), in_thread))
        await self.flush()

    async def flush(self) -> None:
        """Run the deferred statements before the transaction ends."""
        await self._wait_for_flush()
        if self._deferred:
            await self._connection.flush()
            self._deferred.clear()

    def cancel_deferred(self) -> None:
        """The transaction is rolled back, so its deferred statements must not run in the next one."""
        for statement in self._deferred:
            statement.cancelled = True

    async def _wait_for_flush(self) -> None:
        """Wait for an early flush. Raises its error."""
        if self._flush_task is not None:
            flush, self._flush_task = self._flush_task, None
            await flush

    def _defer(self, statement: DeferredWrite | DeferredQuery | DeferredReadThenWrite) -> None:
        self._deferred.append(statement)
        self._connection.defer(statement)

    async def _fetch(self, statement: ClauseElement, params: Mapping[str, Any]) -> Sequence[Row]:
        compiled = compile_statement(statement, params)
        await self._wait_for_flush()
        fetch = self._connection.look_up if compiled.is_look_up else self._connection.fetch
        rows = await fetch(compiled.sql, compiled.bind(params))
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
    """Nothing else retrieves it if the transaction was rolled back."""
    if not done.cancelled():
        done.exception()


class SqliteBackend:
    """Timeouts: `acquire_timeout_s` for the writer or a reader, `transaction_timeout_s` for one transaction and for its commit,
    `busy_timeout_ms` for another process that has the lock."""

    def __init__(
        self,
        path: Path,
        *,
        readers: int = 6,
        acquire_timeout_s: float = 5.0,
        transaction_timeout_s: float = 30.0,
        busy_timeout_ms: int = 5_000,
    ) -> None:
        self._path = path
        self._reader_count = readers
        self._acquire_timeout_s = acquire_timeout_s
        self._transaction_timeout_s = transaction_timeout_s
        self._busy_timeout_ms = busy_timeout_ms
        self._writer: GroupCommitWriter | None = None
        self._failures_before_probe = 0
        self._readers: ReaderPool | None = None

    async def start(self) -> None:
        connection = await SqliteConnection.open(self._path, reader=False, busy_timeout_ms=self._busy_timeout_ms)
        self._writer = GroupCommitWriter(
            connection,
            DatabaseFileIdentityCheck(self._path),
            WalCheckpointer(self._path),
            acquire_timeout_s=self._acquire_timeout_s,
            commit_timeout_s=self._transaction_timeout_s,
        )
        self._readers = ReaderPool(
            self._path, size=self._reader_count, acquire_timeout_s=self._acquire_timeout_s, busy_timeout_ms=self._busy_timeout_ms
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

    def abort_connections(self) -> None:
        """There is no network to a file."""

    async def check(self) -> None:
        """Read, then write and commit a row. Raises Unavailable if one of them is not possible now."""
        if not self.writer.is_running:
            raise Unavailable("The database writer has stopped. Restart the service; the log has the reason.")
        async with self.read():
            pass
        failures = self.writer.connection.failures
        async with self.write() as session:
            await write_probe(session, after_failure=failures != self._failures_before_probe)
        self._failures_before_probe = failures

    @asynccontextmanager
    async def write(self, *, background: bool = False) -> AsyncIterator[SqliteSession]:
        writer = self.writer
        ticket = await writer.begin(background=background)
        session = SqliteSession(writer.connection, ticket)
        timeout = asyncio.timeout(self._transaction_timeout_s)
        try:
            async with timeout:
                yield session
                await session.flush()
        except BaseException as error:
            session.cancel_deferred()
            ticket.end(keep=False)
            if isinstance(error, TimeoutError) and timeout.expired():
                raise Unavailable(_TIMED_OUT) from error
            raise
        finally:
            session.close()
        ticket.end(keep=True)
        await writer.wait_committed(ticket)

    @asynccontextmanager
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[SqliteSession]:
        if self._readers is None:
            raise Unavailable("The database is not open. Start the service first.")
        async with self._readers.connection() as connection:
            session = SqliteSession(connection, None)
            timeout = asyncio.timeout(self._transaction_timeout_s)
            try:
                async with timeout:
                    yield session
            except TimeoutError as error:
                if timeout.expired():
                    raise Unavailable(_TIMED_OUT) from error
                raise
            finally:
                session.cancel_deferred()
                session.close()
