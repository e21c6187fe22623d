"""PostgreSQL: one asyncpg connection per transaction, of SQLAlchemy's pool; statements go to the driver directly.

A connection pool that gives out live connections only.

asyncpg knows without asking when the server has closed a connection. A server that has vanished sends nothing, so a connection
that was idle is pinged before use. One that was used a moment ago is not: a ping takes three round trips, more than most
transactions, and a failure there raises an error that asks the client to try again. When somebody else has found that nothing
comes back from the server, all open connections are aborted, so that nobody waits for an answer until its statement's limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import structlog
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from adapters.storage.errors import NestedWriteError, run_callbacks
from adapters.storage.sql.postgres.continuity import PostgresContinuity
from adapters.storage.sql.postgres.session import DRIVER_ERRORS, PostgresSession
from adapters.storage.sql.probes import write_probe
from domain.kernel.errors import Unavailable

PING_AFTER_IDLE_S = 5.0
IDLE_TRANSACTION_MS = 6_000
"""The server ends a transaction whose client sends nothing for so long: one behind a network that swallows bytes would keep its
locks for ever, and those who take its work over need them."""
PLANNER_SETTINGS = {"enable_seqscan": "off", "jit": "off"}
"""Every statement finds its rows by an index (decision 0006). The server keeps a statement's plan until it gathers statistics
again. For an empty table it plans a sequential scan; a minute later, with 100,000 rows, that plan takes a second."""
KEEPALIVE_SETTINGS = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
"""The server notices after eleven seconds that a machine has vanished."""
_IDLE_SINCE = "rests_since"


def create_pooled_engine(
    url: Any,
    *,
    pool_size: int,
    acquire_timeout_s: float,
    transaction_timeout_s: float,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncEngine:
    """`acquire_timeout_s` limits the wait for a connection, `transaction_timeout_s` each statement. `settings` are
    PostgreSQL's, for each session."""
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=acquire_timeout_s,
        connect_args={
            "timeout": acquire_timeout_s,
            "command_timeout": transaction_timeout_s,
            "statement_cache_size": 512,
            "max_cached_statement_lifetime": 0,
            "server_settings": {
                **PLANNER_SETTINGS,
                **KEEPALIVE_SETTINGS,
                "idle_in_transaction_session_timeout": str(IDLE_TRANSACTION_MS),
                **settings,
            },
        },
    )
    event.listen(engine.sync_engine, "checkin", _mark_idle)
    event.listen(engine.sync_engine, "checkout", _PooledConnectionCheck(engine))
    return engine


class OpenDatabaseConnectionTracker:
    def __init__(self, engine: AsyncEngine) -> None:
        self._drivers: WeakSet[Any] = WeakSet()
        event.listen(engine.sync_engine, "connect", lambda connection, _record: self._drivers.add(connection.driver_connection))

    def abort(self) -> int:
        """As if the server had reset them: statements that wait for an answer fail at once. Returns how many were open."""
        alive = [driver for driver in self._drivers if not driver.is_closed()]
        for driver in alive:
            driver._transport.abort()  # asyncpg's own terminate() leaves a statement that resumes just then without a protocol
        return len(alive)


def _mark_idle(_connection: Any, record: Any) -> None:
    record.info[_IDLE_SINCE] = monotonic()


class _PooledConnectionCheck:
    def __init__(self, engine: AsyncEngine) -> None:
        self._dialect = engine.dialect

    def __call__(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Raises DisconnectionError; the pool then gives another connection."""
        if connection.driver_connection.is_closed():
            raise DisconnectionError("the server has closed this connection")
        since = record.info.get(_IDLE_SINCE)
        if since is None or monotonic() - since < PING_AFTER_IDLE_S:
            return
        try:
            self._dialect.do_ping(connection)
        except Exception as error:
            raise DisconnectionError("the server does not answer on this connection") from error


log = structlog.get_logger("postgres")


class _UndoneError(Exception):
    """Not a failure: ends and rolls back a rehearsal."""


class PostgresBackend:
    def __init__(
        self, engine: AsyncEngine, *, acquire_timeout_s: float = 5.0, continuity: PostgresContinuity | None = None
    ) -> None:
        self._engine = engine
        self._continuity = continuity
        self._acquire_timeout_s = acquire_timeout_s
        self._writing_tasks: set[asyncio.Task[Any] | None] = set()
        self._open_connections = OpenDatabaseConnectionTracker(engine)

    async def start(self) -> None:
        await self.check()

    async def stop(self) -> None:
        await self._engine.dispose()

    def abort_connections(self) -> None:
        log.warning("the database does not answer; its connections are replaced", connections=self._open_connections.abort())

    async def check(self) -> None:
        async with self.write() as session:
            await write_probe(session)

    @asynccontextmanager
    async def write(self, account: str = "", *, background: bool = False) -> AsyncIterator[PostgresSession]:
        """`account` and `background` change nothing: transactions run side by side."""
        task = asyncio.current_task()
        if task in self._writing_tasks:
            raise NestedWriteError
        self._writing_tasks.add(task)
        try:
            async with self._session(writable=True) as session:
                yield session
        finally:
            self._writing_tasks.discard(task)
        run_callbacks(session.after_commit_calls)

    @asynccontextmanager
    async def rehearse(self, account: str) -> AsyncIterator[PostgresSession]:
        with contextlib.suppress(_UndoneError):
            async with self._session(writable=True) as session:
                yield session
                raise _UndoneError

    @asynccontextmanager
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[PostgresSession]:
        async with self._session(writable=False, one_statement=one_statement) as session:
            yield session

    @asynccontextmanager
    async def _session(self, *, writable: bool, one_statement: bool = False) -> AsyncIterator[PostgresSession]:
        connection, driver = await self._connect()
        session = PostgresSession(connection, driver, writable, one_statement, self._continuity)
        try:
            try:
                yield session
            finally:
                session.close()
            if writable:
                await session.commit()
        finally:
            await asyncio.shield(_release(connection, session))

    async def _connect(self) -> tuple[AsyncConnection, Any]:
        """A connection of the pool, and asyncpg's behind it."""
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                connection = await self._engine.connect()
                raw = await connection.get_raw_connection()
                if self._continuity is not None:
                    await _compare(self._continuity, connection, raw.driver_connection)
                return connection, raw.driver_connection
        except DRIVER_ERRORS as error:
            raise Unavailable(
                f"The database does not answer ({str(error) or 'no connection in time'}). "
                "Check LATCHBOARD_DATABASE_URL and whether the server runs."
            ) from error


async def _compare(continuity: PostgresContinuity, connection: AsyncConnection, driver: Any) -> None:
    try:
        await continuity.require_compared(driver)
    except BaseException:
        await asyncio.shield(connection.close())
        raise


async def _release(connection: AsyncConnection, session: PostgresSession) -> None:
    """Give the connection back to the pool, or close one that is broken. Never replaces the error of the transaction."""
    try:
        await session.roll_back()
        await connection.close()
    except DRIVER_ERRORS as error:
        log.warning("a database connection was lost; it is replaced", error=str(error) or type(error).__name__)
        try:
            await connection.invalidate()
            await connection.close()
        except DRIVER_ERRORS:
            log.debug("the lost connection was closed already")
