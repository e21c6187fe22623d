"""PostgreSQL: one asyncpg connection per transaction, of SQLAlchemy's pool; statements go to the driver directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from adapters.storage.after_commit_callback_runner import run_callbacks
from adapters.storage.sql.postgres.pool import OpenDatabaseConnectionTracker
from adapters.storage.sql.postgres.postgres_repository_session import DRIVER_ERRORS, PostgresSession
from adapters.storage.sql.write_probe import write_probe
from adapters.storage.transaction_misuse_errors import NestedWriteError
from domain.kernel.errors import Unavailable

log = structlog.get_logger("postgres")


class PostgresBackend:
    def __init__(self, engine: AsyncEngine, *, acquire_timeout_s: float = 5.0) -> None:
        self._engine = engine
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
    async def write(self, *, background: bool = False) -> AsyncIterator[PostgresSession]:
        """`background` changes nothing: transactions run side by side."""
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
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[PostgresSession]:
        async with self._session(writable=False, one_statement=one_statement) as session:
            yield session

    @asynccontextmanager
    async def _session(self, *, writable: bool, one_statement: bool = False) -> AsyncIterator[PostgresSession]:
        connection, driver = await self._connect()
        session = PostgresSession(connection, driver, writable=writable, one_statement=one_statement)
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
                return connection, raw.driver_connection
        except DRIVER_ERRORS as error:
            raise Unavailable(
                f"The database does not answer ({str(error) or 'no connection in time'}). "
                "Check LATCHBOARD_DATABASE_URL and whether the server runs."
            ) from error


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
