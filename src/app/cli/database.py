"""What an operator does with the database as a whole.

`latchboard backup` copies it and the keys that decrypt its secrets, also while the service runs (`restore.py` puts a copy in
place); `compact` gives the space of deleted rows back to the file system; `move-to` moves the installation from SQLite to
PostgreSQL.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.move import DatabaseMoveResult, abandon_move, move_to_postgres
from adapters.storage.sql.repositories.life import renew_file_life
from adapters.storage.sql.schema import MOVE_MARK_TABLE
from adapters.storage.sql.sqlite.vacuum import read_space, release_step, vacuum
from app.config.settings import Settings
from app.runtime.start import InstanceLock, StartupError
from domain.kernel.dataclasses import service
from domain.kernel.life import LifeCause

BUSY_TIMEOUT_S = 30.0
MOVED_SUFFIX = ".moved-to-postgresql"
"""The old database keeps its rows under this name. A service that starts without LATCHBOARD_DATABASE_URL then refuses: it would
switch the same devices a second time."""
PROGRESS_EVERY_S = 2.0
FOR_POSTGRES = (
    "This command compacts SQLite only. PostgreSQL reuses the space of deleted rows by itself (autovacuum). To give it back to "
    "the file system, run VACUUM (FULL, ANALYZE) on readings, events and deliveries while the service is stopped: it locks each "
    "table."
)


def create_backup(settings: Settings, folder: Path) -> int:
    """The result is a data directory, whose database is another life: a service on it goes on as after `latchboard restore`.

    The backup API of SQLite reads one snapshot and blocks no writer. The keys are copied after the database: a key ring only
    grows until `keys retire`, so they decrypt everything in the copy. Returns the bytes of the copied database. Raises
    StartupError; `folder` then contains no database."""
    source = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if source is None:
        raise StartupError("This command copies SQLite only. For PostgreSQL use pg_dump, and keep secret_keys with the dump.")
    if not source.is_file():
        raise StartupError(f"There is no database {source}. Set LATCHBOARD_DATA_DIR to the service's data directory.")
    keys = settings.data_dir / "secret_keys"
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise StartupError(f"{folder} is not empty. Name a new directory: a backup never overwrites another.")
        folder.chmod(0o700)
        copy = copy_database(source, folder / "latchboard.db")
        if settings.secret_keys is None:
            write_new_file(folder / "secret_keys", keys.read_bytes())
    except (OSError, sqlite3.Error) as error:
        raise StartupError(f"The backup in {folder} failed: {error}.") from None
    return copy.stat().st_size


def copy_database(source: Path, target: Path, cause: LifeCause = LifeCause.BACKUP) -> Path:
    """The copy is another life. Raises OSError, sqlite3.Error; then there is no `target`."""
    unfinished = target.with_name(target.name + ".part")
    write_new_file(unfinished, b"")
    with closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)) as reading, closing(sqlite3.connect(unfinished)) as writing:
        reading.execute("PRAGMA query_only = 1")
        reading.backup(writing)
        [(check_result,)] = writing.execute("PRAGMA quick_check(1)").fetchall()
        if check_result != "ok":
            raise sqlite3.DatabaseError(f"the database is damaged: {check_result}")
        writing.execute("PRAGMA journal_mode = DELETE")
        renew_file_life(writing, cause)
        writing.execute(f"DROP TABLE IF EXISTS {MOVE_MARK_TABLE}")
    return unfinished.rename(target)


def write_new_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class DatabaseCompactionResult:
    """Sizes of the database file in bytes. `is_online`: a service used it meanwhile."""

    path: Path
    before: int
    after: int
    is_online: bool


def compact(settings: Settings) -> DatabaseCompactionResult:
    """Rewrite the file, or release its unused pages while a service runs. Raises StartupError, Unavailable."""
    path = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if path is None:
        raise StartupError(FOR_POSTGRES)
    if not path.is_file():
        raise StartupError(f"There is no database {path}. Set LATCHBOARD_DATA_DIR to the service's data directory.")
    before = path.stat().st_size
    lock = InstanceLock(path)
    try:
        lock.acquire()
    except StartupError as error:
        _release_online(path, error)
        return DatabaseCompactionResult(path, before, path.stat().st_size, is_online=True)
    try:
        vacuum(path)
    finally:
        lock.release()
    return DatabaseCompactionResult(path, before, path.stat().st_size, is_online=False)


def _release_online(path: Path, running: StartupError) -> None:
    """Small steps, between which the service writes. A database that another program has rewritten may have no such steps."""
    if not read_space(path).is_incremental:
        raise StartupError(
            f"{running} Another program has written this database anew; it can only be rewritten as a whole, once. Then the "
            "service gives space back by itself."
        )
    while release_step(path):
        pass


async def move_installation(settings: Settings, url: str, console: Console) -> tuple[DatabaseMoveResult, Path]:
    """Returns what was copied, and where the old database is now. Raises StartupError, DatabaseMoveError."""
    source = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if source is None:
        raise StartupError("LATCHBOARD_DATABASE_URL already names PostgreSQL; this command moves an SQLite database.")
    _require_postgres_url(url)
    lock = InstanceLock(source)
    lock.acquire()
    try:
        result = await move_to_postgres(source, url, _DatabaseMoveProgress(console=console))
        return result, source.rename(source.with_name(source.name + MOVED_SUFFIX))
    finally:
        lock.release()


def abandon(settings: Settings) -> Path:
    """Stay with SQLite after a move that has begun. Returns the database. Raises StartupError."""
    source = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if source is None or not source.is_file():
        raise StartupError("There is no SQLite database here whose move could be abandoned.")
    lock = InstanceLock(source)
    lock.acquire()
    try:
        if not abandon_move(source):
            raise StartupError(f"No move of {source} has begun.")
    except sqlite3.Error as error:
        raise StartupError(f"{source} cannot be written: {error}.") from None
    finally:
        lock.release()
    return source


def _require_postgres_url(url: str) -> None:
    try:
        driver = make_url(url).drivername
    except ArgumentError:
        driver = ""
    if driver != "postgresql+asyncpg":
        raise StartupError("Give the URL of an empty database: postgresql+asyncpg://user:password@host/name")


@service
class _DatabaseMoveProgress:
    """Prints a line when a table begins, and every few seconds in a long one."""

    console: Console
    _table: str = field(default="", init=False)
    _printed_at: float = field(default=0.0, init=False)

    def __call__(self, table: str, rows: int) -> None:
        now = time.monotonic()
        if rows and (table != self._table or now - self._printed_at >= PROGRESS_EVERY_S):
            self.console.print(f"{table}: {rows:,} rows")
            self._table, self._printed_at = table, now
