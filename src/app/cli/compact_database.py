"""`latchboard compact`: gives the space of deleted rows back to the file system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.sqlite.vacuum import read_space, release_step, vacuum
from app.config.settings import Settings
from app.runtime.start import InstanceLock, StartupError

FOR_POSTGRES = (
    "This command compacts SQLite only. PostgreSQL reuses the space of deleted rows by itself (autovacuum). To give it back to "
    "the file system, run VACUUM (FULL, ANALYZE) on readings, events and deliveries while the service is stopped: it locks each "
    "table."
)


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
    """Small steps, between which the service writes. An old database has no such steps."""
    if not read_space(path).is_incremental:
        raise StartupError(
            f"{running} This database was made by an older version and can only be rewritten as a whole, once; afterwards the "
            "service gives space back by itself."
        )
    while release_step(path):
        pass
