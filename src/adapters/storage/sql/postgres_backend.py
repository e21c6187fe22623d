"""PostgreSQL: a connection a transaction, by SQLAlchemy's pool over asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.after_commit import run_all
from adapters.storage.refusals import Closed, NestedWrite, ReadOnly
from adapters.storage.sql.pouring import Pour
from adapters.storage.sql.session import POSTGRES, Dangling, Question, Row, Taken
from domain.kernel.errors import Unavailable

_TAKEN, _DANGLING, _READ_ONLY = "23505", ("23503", "23001"), "25006"
_LATER = ("40001", "40P01", "55P03", "57014", "53", "57P", "08")
"""SQLSTATEs that another try may get past: deadlock, lock or statement timeout, resources, shutdown, connection."""


class PostgresSession:
    dialect = POSTGRES

    def __init__(self, connection: AsyncConnection, *, writable: bool) -> None:
        self._connection = connection
        self._closed = False
        self._begun = False
        self.writable = writable
        self.calls: list[Callable[[], None]] = []

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._check()
        return await self._execute(statement, dict(params))

    async def read_all(self, *questions: Question) -> Sequence[Sequence[Row]]:
        self._check()
        return [await self._execute(statement, dict(params)) for statement, params in questions]

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._check(writing=True)
        return await self._execute(statement, dict(params))

    async def many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]]) -> None:
        self._check(writing=True)
        if rows:
            await self._execute(statement, [dict(row) for row in rows])

    async def later(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]]) -> None:
        await self.many(statement, rows)

    async def pour(self, pour: Pour, rows: Sequence[Sequence[Any]]) -> None:
        self._check(writing=True)
        if rows:
            await self._in_the_driver(pour.postgres, pour.columns(rows))

    async def bulk(self, sql: str, rows: Sequence[Any]) -> None:
        self._check(writing=True)
        if rows:
            await self._in_the_driver(sql, list(map(list, zip(*rows, strict=True))))

    async def _in_the_driver(self, sql: str, columns: Sequence[Sequence[Any]]) -> None:
        """One statement with an array a column carries half as many rows again as one run for each row."""
        if not self._begun:
            await self._execute(_ALIVE, {})  # SQLAlchemy begins with the first statement that goes through it
        raw = await self._connection.get_raw_connection()
        driver: Any = raw.driver_connection
        try:
            await driver.execute(sql, *columns)
        except Exception as error:
            _tell(error, error)

    def after_commit(self, call: Callable[[], None]) -> None:
        self._check(writing=True)
        self.calls.append(call)

    async def _execute(
        self, statement: ClauseElement, params: dict[str, Any] | list[dict[str, Any]]
    ) -> Sequence[Row]:
        self._begun = True
        try:
            result = await self._connection.execute(statement, params)  # type: ignore[call-overload]
        except DBAPIError as error:
            _tell(error, error.orig)
        found: Sequence[Row] = result.fetchall() if result.returns_rows else []
        return found

    def _check(self, *, writing: bool = False) -> None:
        if self._closed:
            raise Closed
        if writing and not self.writable:
            raise ReadOnly


def _tell(error: Exception, cause: BaseException | None) -> NoReturn:
    """Raise the error in our own words."""
    state = str(getattr(cause, "sqlstate", None) or "")
    if state == _TAKEN:
        raise Taken(str(cause)) from error
    if state in _DANGLING:
        raise Dangling(str(cause)) from error
    if state == _READ_ONLY:
        raise ReadOnly from error
    if isinstance(error, (OperationalError, InterfaceError, OSError)) or state.startswith(_LATER):
        raise Unavailable(f"The database cannot do this now ({cause}). Try again in a moment.") from error
    raise error


class PostgresBackend:
    def __init__(self, engine: AsyncEngine, *, patience_s: float = 5.0) -> None:
        self._engine = engine
        self._patience_s = patience_s
        self._writing: set[asyncio.Task[Any] | None] = set()

    async def start(self) -> None:
        await self.check()

    async def stop(self) -> None:
        await self._engine.dispose()

    async def check(self) -> None:
        async with self.write() as session:
            await session.read(_ALIVE)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[PostgresSession]:
        task = asyncio.current_task()
        if task in self._writing:
            raise NestedWrite
        self._writing.add(task)
        try:
            async with self._session(writable=True) as session:
                yield session
        finally:
            self._writing.discard(task)
        run_all(session.calls)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[PostgresSession]:
        async with self._session(writable=False) as session:
            yield session

    @asynccontextmanager
    async def _session(self, *, writable: bool) -> AsyncIterator[PostgresSession]:
        connection = await self._connect()
        try:
            if not writable:
                await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            await connection.begin()
            session = PostgresSession(connection, writable=writable)
            try:
                yield session
            finally:
                session.close()
            if writable:
                await self._commit(connection)
        finally:
            await asyncio.shield(connection.close())

    async def _connect(self) -> AsyncConnection:
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._engine.connect()
        except (TimeoutError, PoolTimeout, OSError, DBAPIError) as error:
            raise Unavailable(
                f"The database does not answer ({error or 'no connection in time'}). "
                "Check LATCHBOARD_DATABASE_URL and whether the server runs."
            ) from error

    async def _commit(self, connection: AsyncConnection) -> None:
        try:
            await connection.commit()
        except DBAPIError as error:
            _tell(error, error.orig)


_ALIVE = text("SELECT 1")
