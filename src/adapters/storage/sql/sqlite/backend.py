"""SQLite: one writing connection with group commit, and separate reading connections.

Readers have connections of their own: each sees the last commit before its first statement, and delays no writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

from adapters.storage.sql.probes import write_probe
from adapters.storage.sql.sqlite.connections import (
    DatabaseFileIdentityCheck,
    SqliteConnection,
    SqliteLookUpConnection,
    WalCheckpointer,
)
from adapters.storage.sql.sqlite.session import SqliteRehearsalSession, SqliteSession
from adapters.storage.sql.sqlite.writer import GroupCommitWriter
from domain.kernel.errors import DomainError, Unavailable

IDLE_SNAPSHOT_S = 0.1
"""How long an idle connection may keep its old snapshot. Under load the next reader ends it with its first statement."""


class SqliteReaderPool:
    """At most `size` connections, opened when needed. The most recently used one comes first, because its cache is warm."""

    def __init__(self, path: Path, *, size: int = 6, acquire_timeout_s: float = 5.0, busy_timeout_ms: int = 5_000) -> None:
        self._path = path
        self._size = size
        self._acquire_timeout_s = acquire_timeout_s
        self._busy_timeout_ms = busy_timeout_ms
        self._slots = asyncio.Semaphore(size)
        self._idle: list[SqliteLookUpConnection] = []
        self._closed = False
        self._snapshot_task: asyncio.Task[None] | None = None

    async def acquire(self) -> SqliteLookUpConnection:
        """A connection in a snapshot that begins with the first statement. Raises Unavailable when none is free in time. Give it
        back with `release`."""
        await self._acquire_slot()
        try:
            if self._closed:
                raise Unavailable("The service is stopping. Try again in a moment.")
            connection = self._idle.pop() if self._idle else await self._open()
        except BaseException:
            self._slots.release()
            raise
        connection.defer_control("BEGIN")
        return connection

    async def release(self, connection: SqliteLookUpConnection) -> None:
        try:
            if connection.transaction_lost:
                await connection.close()
            else:
                self._keep(connection)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Wait for the readers, then close every connection."""
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
            await self._slots.acquire()  # free at once: a timeout would cost more than the wait
            return
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable("Too many reads are running. Try again in a moment.") from None

    async def _open(self) -> SqliteLookUpConnection:
        return await SqliteLookUpConnection.open(self._path, reader=True, busy_timeout_ms=self._busy_timeout_ms)

    def _keep(self, connection: SqliteLookUpConnection) -> None:
        connection.defer_control("ROLLBACK")
        self._idle.append(connection)
        if self._snapshot_task is None or self._snapshot_task.done():
            self._snapshot_task = asyncio.create_task(self._end_idle_snapshots(), name="storage-readers")

    async def _end_idle_snapshots(self) -> None:
        """End the snapshots of idle connections; an old snapshot keeps SQLite from reusing the write-ahead log."""
        while any(connection.has_deferred for connection in self._idle):
            await asyncio.sleep(IDLE_SNAPSHOT_S)
            for connection in [connection for connection in self._idle if connection.has_deferred]:
                try:
                    await connection.flush()
                except DomainError:
                    if connection in self._idle:
                        self._idle.remove(connection)
                        await connection.close()


_TIMED_OUT = "The database did not answer in time, or the request was too large. Nothing was saved. Try again later."


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
        self._readers: SqliteReaderPool | None = None

    async def start(self) -> None:
        connection = await SqliteConnection.open(self._path, reader=False, busy_timeout_ms=self._busy_timeout_ms)
        self._writer = GroupCommitWriter(
            connection,
            DatabaseFileIdentityCheck(self._path),
            WalCheckpointer(self._path),
            acquire_timeout_s=self._acquire_timeout_s,
            commit_timeout_s=self._transaction_timeout_s,
        )
        self._readers = SqliteReaderPool(
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
    async def write(self, account: str = "", *, background: bool = False) -> AsyncIterator[SqliteSession]:
        writer = self.writer
        ticket = await writer.begin(account, background=background)
        session = SqliteSession(writer.connection, ticket)
        timeout = asyncio.timeout(self._transaction_timeout_s)
        try:
            async with timeout:
                yield session
                await session.end()
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
    async def rehearse(self, account: str) -> AsyncIterator[SqliteSession]:
        """With a connection of its own: the copies of the tables go with it."""
        if self._readers is None:
            raise Unavailable("The database is not open. Start the service first.")
        connection = await SqliteConnection.open(self._path, reader=True, busy_timeout_ms=self._busy_timeout_ms)
        connection.defer_control("PRAGMA query_only=OFF", "PRAGMA foreign_keys=OFF", "BEGIN")
        session = SqliteRehearsalSession(connection, account)
        timeout = asyncio.timeout(self._transaction_timeout_s)
        try:
            async with timeout:
                yield session
        except TimeoutError as late:
            raise Unavailable(_TIMED_OUT) from late
        finally:
            session.close()
            await connection.close()

    def read(self, *, one_statement: bool = False) -> SqliteReadTransaction:
        if self._readers is None:
            raise Unavailable("The database is not open. Start the service first.")
        return SqliteReadTransaction(self._readers, self._transaction_timeout_s)


class SqliteReadTransaction:
    """The snapshot of a reader. Every request begins with one, and a generator for it would cost as much as its look-up. Its time
    limit begins with the first statement that runs in the reader's thread; look-ups are bounded by themselves."""

    __slots__ = ("_connection", "_readers", "_session", "_timeout", "_timeout_s")

    def __init__(self, readers: SqliteReaderPool, timeout_s: float) -> None:
        self._readers = readers
        self._timeout_s = timeout_s

    async def __aenter__(self) -> SqliteSession:
        self._connection = await self._readers.acquire()
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._session = SqliteSession(self._connection, None, self._start_timeout)
        return self._session

    def _start_timeout(self) -> None:
        if self._timeout.when() is None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise Unavailable(_TIMED_OUT) from late
        finally:
            self._session.cancel_deferred()
            self._session.close()
            await self._readers.release(self._connection)
