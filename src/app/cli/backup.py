"""`latchboard backup`: copies the database and the keys that decrypt its secrets, also while the service runs.

The result is a data directory: to restore it, start the service on a copy. The backup API of SQLite reads one snapshot and blocks
no writer. The keys are copied after the database: a key ring only grows until `keys retire`, so they decrypt everything in the
copy.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adapters.storage.sql import SqlDatabase
from app.config.settings import Settings
from app.runtime.start import StartupError

BUSY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class BackupResult:
    folder: Path
    size_bytes: int
    includes_keys: bool
    """False when the key ring is in LATCHBOARD_SECRET_KEYS, which needs a backup of its own."""


def create_backup(settings: Settings, folder: Path) -> BackupResult:
    """Raises StartupError; `folder` then contains no database."""
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
        copy = _copy_database(source, folder / "latchboard.db")
        if settings.secret_keys is None:
            _write_new_file(folder / "secret_keys", keys.read_bytes())
    except (OSError, sqlite3.Error) as error:
        raise StartupError(f"The backup in {folder} failed: {error}.") from None
    return BackupResult(folder, copy.stat().st_size, settings.secret_keys is None)


def _copy_database(source: Path, target: Path) -> Path:
    unfinished = target.with_name(target.name + ".part")
    _write_new_file(unfinished, b"")
    with closing(sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)) as reading, closing(sqlite3.connect(unfinished)) as writing:
        reading.execute("PRAGMA query_only = 1")
        reading.backup(writing)
        [(check_result,)] = writing.execute("PRAGMA quick_check(1)").fetchall()
        if check_result != "ok":
            raise sqlite3.DatabaseError(f"the database is damaged: {check_result}")
        writing.execute("PRAGMA journal_mode = DELETE")
    return unfinished.rename(target)


def _write_new_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
