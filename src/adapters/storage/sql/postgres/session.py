"""A transaction on asyncpg, and the driver's errors in the words of the ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import asyncpg
import structlog
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.errors import ReadOnlyTransactionError, SecondReadStatementError, TransactionClosedError
from adapters.storage.sql.postgres.continuity import PostgresContinuity
from adapters.storage.sql.session import (
    POSTGRES,
    ForeignKeyViolationError,
    Query,
    Row,
    StatementCompiler,
    UniqueViolationError,
    WritePlan,
)
from adapters.storage.sql.statements import BulkStatement, join_for_postgres
from domain.kernel.errors import Unavailable, UnstorableValue

_UNIQUE_VIOLATION, _FOREIGN_KEY_VIOLATIONS, _READ_ONLY = "23505", ("23503", "23001"), "25006"
_DATA_ERRORS = ("22", "23", "54")
"""SQLSTATE classes that are proven to be about the data: data exception, integrity constraint, program limit (a value too long
for an index). Another try with the same values fails again."""
DRIVER_ERRORS = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Everything the driver raises; `TimeoutError` is an OSError."""
ROLLBACK_TIMEOUT_S = 2.0

log = structlog.get_logger("postgres")


class FetchedQueryResult:
    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    async def rows(self) -> Sequence[Row]:
        return self._rows


class PostgresSession:
    dialect = POSTGRES

    def __init__(
        self,
        connection: AsyncConnection,
        driver: Any,
        writable: bool,
        one_statement: bool = False,
        continuity: PostgresContinuity | None = None,
    ) -> None:
        """`driver`: asyncpg's connection behind `connection`. `one_statement`: no transaction around it."""
        self._connection = connection
        self._driver = driver
        self._closed = False
        self._begins = not one_statement
        self._statements = 0
        self._continuity = continuity
        self.has_begun = False
        self.writable = writable
        self.locks_reads = False
        self.after_commit_calls: list[Callable[[], None]] = []

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open()
        return await self._fetch(statement, params)

    async def read_batch(self, *questions: Query) -> Sequence[Sequence[Row]]:
        self._require_open()
        return [await self._fetch(statement, params) for statement, params in questions]

    async def write_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        return [await self.write(statement, **params) for statement, params in queries]

    async def begin_read(self, statement: ClauseElement, **params: Any) -> FetchedQueryResult:
        return FetchedQueryResult(await self.read(statement, **params))

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open(writing=True)
        return await self._fetch(statement, params)

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        self._require_open(writing=True)
        if rows:
            compiled = _compile(statement, rows[0])
            with translated_errors():
                await self._begin()
                await self._driver.executemany(compiled.sql, [compiled.bind(row) for row in rows])

    async def bulk_write(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> None:
        await self.bulk_write_all([(statement, rows)])

    async def bulk_write_all(self, writes: Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]) -> None:
        """One array per column stores half as many rows again per second as one run per row."""
        self._require_open(writing=True)
        filled = [(statement, rows) for statement, rows in writes if rows]
        if not filled:
            return
        columns = [column for statement, rows in filled for column in statement.postgres_params(rows)]
        with translated_errors():
            await self._begin()
            await self._driver.execute(_joined(tuple(statement for statement, _ in filled)), *columns)

    async def read_then_write(self, statement: ClauseElement, plan: WritePlan, **params: Any) -> None:
        await self.bulk_write_all(plan(await self.write(statement, **params)))

    def after_commit(self, call: Callable[[], None]) -> None:
        self._require_open(writing=True)
        self.after_commit_calls.append(call)

    async def _fetch(self, statement: ClauseElement, params: Mapping[str, Any]) -> Sequence[Row]:
        compiled = _compile(statement, params)
        with translated_errors():
            await self._begin()
            rows: Sequence[Row] = await self._driver.fetch(compiled.sql, *compiled.bind(params))
        if self._continuity is not None:
            self._continuity.heard()
        return rows

    async def _begin(self) -> None:
        """With the first statement: many transactions end before one."""
        self._statements += 1
        if not self._begins:
            if self._statements > 1:
                raise SecondReadStatementError
        elif not self.has_begun:
            self.has_begun = True  # before it has: what was cancelled on its way is rolled back
            try:
                await self._driver.execute(_BEGIN[self.writable])
            except BaseException:
                self._closed = True  # nothing may run without a transaction around it
                raise

    async def commit(self) -> None:
        """Raises Unavailable if the database rolled back instead, because a statement had failed and its error was caught."""
        if not self.has_begun:
            return
        follows = self._continuity if self.writable else None
        with translated_errors():
            noted = None if follows is None else await follows.note(self._driver)
            ended = await self._driver.execute("COMMIT")
        self.has_begun = False
        if ended != "COMMIT":
            log.error("a transaction went on after an error of the database; nothing of it was saved")
            raise Unavailable("The database did not save the change. Try again in a moment.")
        if follows is not None:
            follows.committed(noted)
        if self._continuity is not None:
            self._continuity.heard()

    async def roll_back(self) -> None:
        """Raises TimeoutError soon: behind a silent network, and on a connection whose last statement got no answer, it would
        wait as long again as that."""
        if self.has_begun:
            async with asyncio.timeout(ROLLBACK_TIMEOUT_S):
                await self._driver.execute("ROLLBACK")
            self.has_begun = False

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
    except DRIVER_ERRORS as error:
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


@cache
def _joined(statements: tuple[BulkStatement, ...]) -> str:
    return join_for_postgres(statements)


_BEGIN = {True: "BEGIN", False: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}
_compile = StatementCompiler(PGDialect_asyncpg())  # type: ignore[no-untyped-call]
