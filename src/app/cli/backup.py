"""`latchboard backup`: the database and the keys that open its secrets, as they were at one moment, also while the service runs.

What comes out is a data directory: to restore it, let the service start on it. SQLite's own backup reads one snapshot beside the
writer; nobody waits for it. The keys are copied after it: a ring only grows until `keys retire`, so they open all of the copy.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adapters.storage.sql import SqlDatabase
from app.config.settings import Settings
from app.runtime.errors import StartupError

BUSY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class BackupResult:
    folder: Path
    size_bytes: int
    includes_keys: bool
    """False where the ring is in LATCHBOARD_SECRET_KEYS: that has to be kept by other means."""


def create_backup(settings: Settings, folder: Path) -> BackupResult:
    """Raises StartRefused; `folder` is left without a database then."""
    source = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if source is None:
        raise StartupError("This copies SQLite only. For PostgreSQL use pg_dump, and keep the secret_keys beside it.")
    if not source.is_file():
        raise StartupError(f"There is no database {source}. Set LATCHBOARD_DATA_DIR to the service's data directory.")
    keys = settings.data_dir / "secret_keys"
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise StartupError(f"{folder} is not empty. Name a new directory: no backup is written over another.")
        folder.chmod(0o700)
        copy = _copy_database(source, folder / "latchboard.db")
        if settings.secret_keys is None:
            _write_new_file(folder / "secret_keys", keys.read_bytes())
    except (OSError, sqlite3.Error) as error:
        raise StartupError(f"The backup in {folder} was not made: {error}.") from None
    return BackupResult(folder, copy.stat().st_size, settings.secret_keys is None)


def _copy_database(source: Path, target: Path) -> Path:
    unfinished = target.with_name(target.name + ".part")
    _write_new_file(unfinished, b"")
    with closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)) as reading, closing(sqlite3.connect(unfinished)) as writing:
        reading.execute("PRAGMA query_only = 1")
        reading.backup(writing)
        [(verdict,)] = writing.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the database is damaged: {verdict}")
        writing.execute("PRAGMA journal_mode = DELETE")
    return unfinished.rename(target)


def _write_new_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
