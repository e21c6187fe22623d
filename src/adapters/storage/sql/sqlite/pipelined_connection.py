"""Statements of SQLite that run together with the next one, in the same hop to the connection's thread."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.storage.sql.sql_session_port import Row
from domain.kernel.errors import Unavailable

SAVEPOINT = "ticket"
"""The name of each transaction's savepoint: one is released before the next is set."""


class TransactionControlError(Unavailable):
    """A BEGIN, SAVEPOINT, RELEASE or COMMIT failed."""


@dataclass(slots=True)
class DeferredStatementsOutcome:
    """A transaction that has ended while it had deferred statements. `error`: why the thread has rolled it back."""

    error: Exception | None = None


@dataclass(slots=True, kw_only=True)
class _DeferredStatementBase:
    """`cancelled`: its transaction was rolled back, so it must not run. `transaction`: set when it has ended."""

    cancelled: bool = False
    transaction: DeferredStatementsOutcome | None = None


@dataclass(slots=True)
class DeferredWriteStatement(_DeferredStatementBase):
    sql: str
    rows: Sequence[Sequence[Any]]


@dataclass(slots=True)
class DeferredQueryStatement(_DeferredStatementBase):
    """`rows` is set when `done`."""

    sql: str
    params: Sequence[Any]
    rows: Sequence[Row] = ()
    done: bool = False


@dataclass(slots=True)
class DeferredReadThenWriteStatement(_DeferredStatementBase):
    """A read, and the writes that `plan` makes of its rows: SQL and rows of each. `plan` runs in the connection's thread."""

    sql: str
    params: Sequence[Any]
    plan: Callable[[Sequence[Row]], Iterable[tuple[str, Sequence[Sequence[Any]]]]]


DeferredStatement = str | DeferredWriteStatement | DeferredQueryStatement | DeferredReadThenWriteStatement


class PipelinedSqliteConnection(sqlite3.Connection):
    """Runs the deferred statements before each statement. Used in its own thread, except by `SqliteLookUpConnection`."""

    deferred: deque[DeferredStatement]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._flush()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        self._flush()
        return super().executemany(sql, parameters)

    def _flush(self) -> None:
        while self.deferred:
            one = self.deferred.popleft()
            if isinstance(one, str):
                self._run_control(one)
            elif one.cancelled or (one.transaction is not None and one.transaction.error is not None):
                continue
            elif one.transaction is None:
                self._run(one)
            else:
                try:
                    self._run(one)
                except Exception as error:
                    one.transaction.error = error
                    self._run_control(f"ROLLBACK TO {SAVEPOINT}")

    def _run(self, one: DeferredWriteStatement | DeferredQueryStatement | DeferredReadThenWriteStatement) -> None:
        if isinstance(one, DeferredWriteStatement):
            super().executemany(one.sql, one.rows)
        elif isinstance(one, DeferredReadThenWriteStatement):
            for sql, rows in one.plan(super().execute(one.sql, one.params).fetchall()):
                super().executemany(sql, rows)
        else:
            one.rows = super().execute(one.sql, one.params).fetchall()
            one.done = True

    def _run_control(self, sql: str) -> None:
        try:
            super().execute(sql)
        except sqlite3.Error as error:
            raise TransactionControlError(f"The database refused {sql}: {error}. Try again in a moment.") from error
