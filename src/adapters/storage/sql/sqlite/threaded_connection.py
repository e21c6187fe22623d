"""One SQLite connection with its thread. Statements run in the order in which they were given, one thread hop each.

A hop to the thread and back costs more than most statements. So BEGIN, SAVEPOINT and RELEASE get no hop of their own: they are
*deferred*, and run right before the next statement in the same hop. Writes that return nothing, and reads that are asked together
with another read, are deferred the same way. The statement that runs them raises their errors. If a deferred BEGIN, SAVEPOINT or
RELEASE fails, it raises TransactionControlError, and everything since the last commit is uncertain.

What a transaction has deferred when it ends runs with the next statement of its group, at the latest with COMMIT. An error then
concerns this transaction alone: the thread rolls it back to its savepoint, and the writer raises the error to its caller.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import aiosqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from adapters.storage.sql.compiled_statement import StatementCompiler
from adapters.storage.sql.sql_session_port import ForeignKeyViolationError, Row, UniqueViolationError
from adapters.storage.sql.sqlite.pipelined_connection import (
    DeferredQueryStatement,
    DeferredReadThenWriteStatement,
    DeferredWriteStatement,
    PipelinedSqliteConnection,
    TransactionControlError,
)
from adapters.storage.sql.sqlite.wal_checkpoints import CHECKPOINT_BYTES, MAX_LOG_PAGES
from domain.kernel.errors import Unavailable, UnstorableValue

_UNIQUE_VIOLATIONS = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID")
_FOREIGN_KEY_VIOLATIONS = ("SQLITE_CONSTRAINT_FOREIGNKEY", "SQLITE_CONSTRAINT_TRIGGER")
_DATA_ERRORS = ("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_RANGE")
"""Proven to be about the data: another try with the same values fails again."""
_UNBINDABLE = (OverflowError, UnicodeEncodeError)
"""An integer of more than 64 bits, or half a character: the driver refuses the value before the database sees it."""
DRIVER_ERRORS = (sqlite3.Error, ValueError, OverflowError)
"""Everything the driver raises; aiosqlite raises ValueError on a closed connection."""


compile_statement = StatementCompiler(SQLiteDialect_pysqlite(paramstyle="qmark"))


class SqliteConnection:
    def __init__(self, connection: aiosqlite.Connection, raw: PipelinedSqliteConnection, busy_timeout_ms: int) -> None:
        self._connection = connection
        self._busy_timeout_ms = busy_timeout_ms
        self._raw = raw
        self._deferred = raw.deferred
        self.failures = 0
        """How often a statement failed for another reason than its data."""
        self.transaction_lost = False  # BEGIN, SAVEPOINT or RELEASE failed: the state of the open transaction is uncertain

    @classmethod
    async def open(cls, path: Path, *, reader: bool, busy_timeout_ms: int) -> Self:
        made: list[PipelinedSqliteConnection] = []

        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = PipelinedSqliteConnection(*args, **kwargs)
            connection.deferred = deque()
            made.append(connection)
            return connection

        connection = await aiosqlite.connect(
            _file_uri(path, reader=reader),
            uri=True,
            isolation_level=None,
            cached_statements=512,
            timeout=busy_timeout_ms / 1000,
            factory=connect,
            check_same_thread=not reader,
        )
        opened = cls(connection, made[0], busy_timeout_ms)
        try:
            for pragma in _pragmas(reader=reader):
                await opened.fetch(pragma)
        except BaseException:
            await opened.close()  # otherwise its thread keeps the process alive
            raise
        return opened

    def defer_control(self, *controls: str) -> None:
        self._deferred.extend(controls)

    def defer(self, one: DeferredWriteStatement | DeferredQueryStatement | DeferredReadThenWriteStatement) -> None:
        self._deferred.append(one)

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def reset(self) -> None:
        """Drop the deferred statements, and forget that the transaction was lost."""
        self._deferred.clear()
        self.transaction_lost = False

    async def flush(self) -> None:
        """Run the deferred statements now."""
        await self.fetch("SELECT 1")

    async def fetch(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        try:
            return await self._connection.execute_fetchall(sql, params)  # type: ignore[return-value]
        except TransactionControlError:
            self.transaction_lost = True
            self.failures += 1
            raise
        except DRIVER_ERRORS as error:
            raise self.translate(error) from error

    def try_look_up(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row] | None:
        """The rows of a `LOOK_UP` statement, if they can be had without the thread."""
        return None

    async def execute_many(self, sql: str, rows: Iterable[Any]) -> None:
        try:
            async with self._connection.executemany(sql, rows):
                pass
        except TransactionControlError:
            self.transaction_lost = True
            self.failures += 1
            raise
        except DRIVER_ERRORS as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> Exception:
        """The domain's error for an error of a statement, with that as its cause; others are as they are."""
        if not isinstance(error, DRIVER_ERRORS):
            return error
        translated = translate_error(error)
        translated.__cause__ = error
        self.failures += isinstance(translated, Unavailable)
        return translated

    async def close(self) -> None:
        self._deferred.clear()
        await self._connection.close()


def _file_uri(path: Path, *, reader: bool) -> str:
    """A reader must not create a file in the place of one that is gone."""
    return f"{path.absolute().as_uri()}?mode={'rw' if reader else 'rwc'}"


def _pragmas(*, reader: bool) -> tuple[str, ...]:
    """With FULL a commit survives a power cut once it has returned. A negative cache size is in KiB. The journal size limit frees
    disk space after a burst of writes."""
    both = ("PRAGMA foreign_keys=ON", "PRAGMA temp_store=MEMORY", "PRAGMA mmap_size=268435456")
    if reader:
        return (*both, "PRAGMA cache_size=-8000", "PRAGMA query_only=ON")
    writer = (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        f"PRAGMA journal_size_limit={CHECKPOINT_BYTES}",
        f"PRAGMA wal_autocheckpoint={MAX_LOG_PAGES}",
        "PRAGMA secure_delete=ON",
    )
    return (*writer, *both, "PRAGMA cache_size=-64000")


def translate_error(error: Exception) -> Exception:
    """The domain's error for an error of the driver. Only what is proven to be about the data is not Unavailable."""
    name = getattr(error, "sqlite_errorname", "")
    if name in _UNIQUE_VIOLATIONS:
        return UniqueViolationError(str(error))
    if name in _FOREIGN_KEY_VIOLATIONS:
        return ForeignKeyViolationError(str(error))
    if name.startswith(_DATA_ERRORS) or isinstance(error, _UNBINDABLE):
        return UnstorableValue(f"The database cannot store a value ({error}). Correct the value.")
    return Unavailable(f"The database cannot do this now ({error}). Try again; if it fails again, check disk and files.")
