"""One SQLite connection with its thread. Statements run in the order in which they were given, one thread hop each.

A hop to the thread and back costs more than most statements. So BEGIN, SAVEPOINT and RELEASE get no hop of their own: they are
*deferred*, and run right before the next statement in the same hop. Writes that return nothing, and reads that are asked together
with another read, are deferred the same way. The statement that runs them raises their errors. If a deferred BEGIN, SAVEPOINT or
RELEASE fails, it raises TransactionControlError, and everything since the last commit is uncertain.

What a transaction has deferred when it ends runs with the next statement of its group, at the latest with COMMIT. An error then
concerns this transaction alone: the thread rolls it back to its savepoint, and the writer raises the error to its caller.

Statements of SQLite that run together with the next one, in the same hop to the connection's thread.

A reading connection, which looks up single rows without its thread.

The hop to the thread and back takes five times as long as SQLite needs for a row that it finds by its key. So a `LOOK_UP`
statement runs on the event loop while the thread has nothing to do. There it waits for no lock, and is interrupted after some
thousand steps; in both cases the thread repeats it. Such rows are read with almost every request, so their pages are in memory.

Moves the write-ahead log into the database file while the writer goes on.

By itself, SQLite does this in the commit that makes the log longer than 1,000 pages, and all who wait for that commit wait for
hundreds of scattered writes too. Here a thread with a connection of its own does it (a passive checkpoint). The log begins anew
only when it was moved as a whole, which may not happen while one commit follows the other. So at `MAX_LOG_PAGES` a commit still
moves the rest, which is little.

Whether the open database file and its write-ahead log are still the files at their paths.

A process that has a file open can go on writing to it after the file was deleted or replaced, and every commit succeeds. The
data is gone when the process ends. So each commit compares device and inode of the paths with those of the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self

import aiosqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from adapters.storage.sql.session import ForeignKeyViolationError, Row, StatementCompiler, UniqueViolationError
from domain.kernel.errors import Unavailable, UnstorableValue

SAVEPOINT = "ticket"
"""The name of each transaction's savepoint: one is released before the next is set."""
OPEN_PAUSE_S = 0.02


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


CHECKPOINT_BYTES = 16 * 2**20
"""By how much the log grows from one checkpoint to the next. With less, pages that change often are written more often; with
more, one checkpoint keeps the disk busy for longer."""
MAX_LOG_PAGES = 16_000
"""64 MiB."""


class WalCheckpointer:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._moved_bytes = 0
        """The size of the log at the last checkpoint."""
        self._task: asyncio.Task[None] | None = None

    def on_commit(self) -> None:
        """Begin a checkpoint if the log has grown enough."""
        if self._task is not None and not self._task.done():
            return
        try:
            size = self._log.stat().st_size
        except OSError:
            return  # it is gone; the writer reports that
        if size < self._moved_bytes:
            self._moved_bytes = 0  # the log has begun anew, and its file was cut to `CHECKPOINT_BYTES`
        if size - self._moved_bytes > CHECKPOINT_BYTES:
            self._moved_bytes = size
            self._task = asyncio.create_task(asyncio.to_thread(_checkpoint, self._path), name="storage-checkpoint")

    async def stop(self, timeout_s: float) -> None:
        """Wait for the present checkpoint. One that takes longer does no harm: it moves only what is stored already."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)


def _checkpoint(path: Path) -> None:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # if it fails, the commit that must do it reports why


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
                await opened._set(pragma)
        except BaseException:
            await opened.close()  # otherwise its thread keeps the process alive
            raise
        return opened

    async def _set(self, pragma: str) -> None:
        """SQLite by itself does not wait when it turns a new file to a write-ahead log and another process writes that file."""
        deadline = monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                await self._connection.execute_fetchall(pragma)
            except DRIVER_ERRORS as error:
                if getattr(error, "sqlite_errorname", "") != "SQLITE_BUSY" or monotonic() >= deadline:
                    raise self.translate(error) from error
                await asyncio.sleep(OPEN_PAUSE_S)
            else:
                return

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


PROGRESS_STEPS, MAX_PROGRESS = 2_500, 2
"""SQLite reports each 2,500 steps of its machine, counted over all uses of a statement; so a look-up takes 7,500 at most, about
0.3 ms. A row by its key takes fifty."""
IS_SERIALIZED = sqlite3.threadsafety == 3
"""Whether SQLite was compiled so that two threads may use a connection in turn."""


class SqliteLookUpConnection(SqliteConnection):
    _statements_in_thread = 0
    _waits_for_locks = True
    _progress = 0

    def try_look_up(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row] | None:
        if IS_SERIALIZED and not self._statements_in_thread and all(isinstance(one, str) for one in self._deferred):
            try:
                return self._look_up_at_once(sql, params)
            except TransactionControlError:
                self.transaction_lost = True
                self.failures += 1
                raise
            except sqlite3.Error:
                pass  # the thread waits for the lock, takes its time, or raises the error
        return None

    def _look_up_at_once(self, sql: str, params: Sequence[Any]) -> Sequence[Row]:
        if self._waits_for_locks:
            self._deferred.appendleft("PRAGMA busy_timeout=0")
            self._waits_for_locks = False
        self._progress = 0
        self._raw.set_progress_handler(self._is_too_long, PROGRESS_STEPS)
        try:
            return self._raw.execute(sql, params).fetchall()
        finally:
            self._raw.set_progress_handler(None, 0)

    async def fetch(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        """In the thread. If the caller is cancelled, the thread finishes the statement, and no look-up runs until then."""
        if not self._waits_for_locks:
            self._deferred.appendleft(f"PRAGMA busy_timeout={self._busy_timeout_ms}")
            self._waits_for_locks = True
        self._statements_in_thread += 1
        task = asyncio.ensure_future(super().fetch(sql, params))
        task.add_done_callback(self._on_fetched)
        return await asyncio.shield(task)

    def _on_fetched(self, done: asyncio.Future[Sequence[Row]]) -> None:
        self._statements_in_thread -= 1
        if not done.cancelled():
            done.exception()  # the caller may be gone

    def _is_too_long(self) -> bool:
        self._progress += 1
        return self._progress > MAX_PROGRESS


FileIdentity = tuple[int, int]
"""st_dev and st_ino."""


class DatabaseFileIdentityCheck:
    def __init__(self, database: Path) -> None:
        """Call this right after the database was opened."""
        self._database = database
        self._write_ahead_log = database.with_name(f"{database.name}-wal")
        self._identities: dict[Path, FileIdentity] = {}
        self.remember()

    def remember(self) -> None:
        """Remember the identity of each file that was not there before: SQLite creates the write-ahead log when it needs it."""
        for path in (self._database, self._write_ahead_log):
            if path not in self._identities and (identity := _read_identity(path)) is not None:
                self._identities[path] = identity

    def check(self) -> None:
        """Raises Unavailable if a file was deleted, moved or replaced."""
        for path, identity in self._identities.items():
            found = _read_identity(path)
            if found != identity:
                reason = "is gone" if found is None else "was replaced by another file"
                raise Unavailable(
                    f"The database file {path} {reason} while the service runs, so nothing is saved. "
                    "Stop the service, put the data directory back or restore a backup, and start again."
                )


def _read_identity(path: Path) -> FileIdentity | None:
    try:
        found = os.stat(path)  # runs four times per commit, and Path.stat costs twice as much
    except OSError:
        return None
    return found.st_dev, found.st_ino
