"""`latchboard move-to`: moves this installation from SQLite to PostgreSQL."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.copy_to_postgres import DatabaseMoveResult, move_to_postgres
from app.config.settings import Settings
from app.runtime.start import InstanceLock, StartupError

MOVED_SUFFIX = ".moved-to-postgresql"
"""The old database keeps its rows under this name. A service that starts without LATCHBOARD_DATABASE_URL then refuses: it would
switch the same devices a second time."""
PROGRESS_EVERY_S = 2.0


async def move_installation(settings: Settings, url: str, console: Console) -> tuple[DatabaseMoveResult, Path]:
    """Returns what was copied, and where the old database is now. Raises StartupError, DatabaseMoveError."""
    source = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if source is None:
        raise StartupError("LATCHBOARD_DATABASE_URL already names PostgreSQL; this command moves an SQLite database.")
    _require_postgres_url(url)
    lock = InstanceLock(source)
    lock.acquire()
    try:
        result = await move_to_postgres(source, url, _DatabaseMoveProgress(console))
        return result, source.rename(source.with_name(source.name + MOVED_SUFFIX))
    finally:
        lock.release()


def _require_postgres_url(url: str) -> None:
    try:
        driver = make_url(url).drivername
    except ArgumentError:
        driver = ""
    if driver != "postgresql+asyncpg":
        raise StartupError("Give the URL of an empty database: postgresql+asyncpg://user:password@host/name")


class _DatabaseMoveProgress:
    """Prints a line when a table begins, and every few seconds in a long one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._table = ""
        self._printed_at = 0.0

    def __call__(self, table: str, rows: int) -> None:
        now = time.monotonic()
        if rows and (table != self._table or now - self._printed_at >= PROGRESS_EVERY_S):
            self._console.print(f"{table}: {rows:,} rows")
            self._table, self._printed_at = table, now
