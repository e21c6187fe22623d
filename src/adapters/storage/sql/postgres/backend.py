"""PostgreSQL: one pooled asyncpg connection per transaction, through SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn

import asyncpg
import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.after_commit import run_callbacks
from adapters.storage.errors import NestedWriteError, ReadOnlyTransactionError, TransactionClosedError
from adapters.storage.sql.bulk_insert import BulkStatement
from adapters.storage.sql.session import POSTGRES, ForeignKeyViolationError, Query, Row, UniqueViolationError, WritePlan
from adapters.storage.sql.write_probe import write_probe
from domain.kernel.errors import Unavailable, UnstorableValue

_UNIQUE_VIOLATION, _FOREIGN_KEY_VIOLATIONS, _READ_ONLY = "23505", ("23503", "23001"), "25006"
_DATA_ERRORS = ("22", "23", "54")
"""SQLSTATE classes that are proven to be about the data: data exception, integrity constraint, program limit (a value too long
for an index). Another try with the same values fails again."""
_DRIVER_ERRORS = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Everything the driver raises; `TimeoutError` is an OSError."""

log = structlog.get_logger("postgres")


class CompletedRead:
    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    async def rows(self) -> Sequence[Row]:
        return self._rows


class PostgresSession:
    dialect = POSTGRES

    def __init__(self, connection: AsyncConnection, *, writable: bool) -> None:
        self._connection = connection
        self._closed = False
        self._transaction_begun = False
        self.writable = writable
        self.after_commit_calls: list[Callable[[], None]] = []

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open()
        return await self._execute(statement, dict(params))

    async def read_batch(self, *questions: Query) -> Sequence[Sequence[Row]]:
        self._require_open()
        return [await self._execute(statement, dict(params)) for statement, params in questions]

    async def begin_read(self, statement: ClauseElement, **params: Any) -> CompletedRead:
        return CompletedRead(await self.read(statement, **params))

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open(writing=True)
        return await self._execute(statement, dict(params))

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        self._require_open(writing=True)
        if rows:
            await self._execute(statement, [dict(row) for row in rows])

    async def bulk_write(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> None:
        self._require_open(writing=True)
        if rows:
            await self._execute_in_driver(statement.postgres_sql, statement.postgres_params(rows))

    async def read_then_write(self, statement: ClauseElement, plan: WritePlan, **params: Any) -> None:
        for bulk, rows in plan(await self.write(statement, **params)):
            await self.bulk_write(bulk, rows)

    async def _execute_in_driver(self, sql: str, columns: Sequence[Sequence[Any]]) -> None:
        """Run SQL in the driver's own style: one array per column stores half as many rows again per second as one run per
        row."""
        if not self._transaction_begun:
            await self._execute(_PING, {})  # SQLAlchemy begins the transaction with the first statement it runs
        with translated_errors():
            raw = await self._connection.get_raw_connection()
            driver: Any = raw.driver_connection
            await driver.execute(sql, *columns)

    def after_commit(self, call: Callable[[], None]) -> None:
        self._require_open(writing=True)
        self.after_commit_calls.append(call)

    async def _execute(self, statement: ClauseElement, params: dict[str, Any] | list[dict[str, Any]]) -> Sequence[Row]:
        self._transaction_begun = True
        with translated_errors():
            result = await self._connection.execute(statement, params)  # type: ignore[call-overload]
            found: Sequence[Row] = result.fetchall() if result.returns_rows else []
        return found

    def _require_open(self, *, writing: bool = False) -> None:
        if self._closed:
            raise TransactionClosedError
        if writing and not self.writable:
            raise ReadOnlyTransactionError


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise every error of the driver as one of the domain's. Only what is proven to be about the data is not Unavailable."""
    try:
        yield
    except _DRIVER_ERRORS as error:
        _raise_translated(error, getattr(error, "orig", None) or error)


def _raise_translated(error: Exception, cause: BaseException) -> NoReturn:
    state = str(getattr(cause, "sqlstate", None) or "")
    if state == _UNIQUE_VIOLATION:
        raise UniqueViolationError(str(cause)) from error
    if state in _FOREIGN_KEY_VIOLATIONS:
        raise ForeignKeyViolationError(str(cause)) from error
    if state == _READ_ONLY:
        raise ReadOnlyTransactionError from error
    if state.startswith(_DATA_ERRORS):
        raise UnstorableValue(f"The database cannot store a value ({cause}). Correct the value.") from error
    raise Unavailable(
        f"The database cannot do this now ({str(cause) or type(cause).__name__}). Try again in a moment."
    ) from error


class PostgresBackend:
    def __init__(self, engine: AsyncEngine, *, acquire_timeout_s: float = 5.0) -> None:
        self._engine = engine
        self._acquire_timeout_s = acquire_timeout_s
        self._writing_tasks: set[asyncio.Task[Any] | None] = set()

    async def start(self) -> None:
        await self.check()

    async def stop(self) -> None:
        await self._engine.dispose()

    async def check(self) -> None:
        async with self.write() as session:
            await write_probe(session)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[PostgresSession]:
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
    async def read(self) -> AsyncIterator[PostgresSession]:
        async with self._session(writable=False) as session:
            yield session

    @asynccontextmanager
    async def _session(self, *, writable: bool) -> AsyncIterator[PostgresSession]:
        connection = await self._connect()
        try:
            with translated_errors():
                if not writable:
                    await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                await connection.begin()
            session = PostgresSession(connection, writable=writable)
            try:
                yield session
            finally:
                session.close()
            if writable:
                with translated_errors():
                    await connection.commit()
        finally:
            await asyncio.shield(_release(connection))

    async def _connect(self) -> AsyncConnection:
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                return await self._engine.connect()
        except _DRIVER_ERRORS as error:
            raise Unavailable(
                f"The database does not answer ({str(error) or 'no connection in time'}). "
                "Check LATCHBOARD_DATABASE_URL and whether the server runs."
            ) from error


async def _release(connection: AsyncConnection) -> None:
    """Give the connection back to the pool, or close one that is broken. Never replaces the error of the transaction."""
    try:
        await connection.close()
    except _DRIVER_ERRORS as error:
        log.warning("a database connection was lost; it is replaced", error=str(error) or type(error).__name__)
        try:
            await connection.invalidate()
        except _DRIVER_ERRORS:
            log.debug("the lost connection was closed already")


_PING = text("SELECT 1")
