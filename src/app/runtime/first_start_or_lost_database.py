"""Tells the first start of a data directory from a start whose database was lost.

The law: a service that had data never starts empty without a word. The key file is created before the database, so a marker file
lies beside it until the database holds an account. A key file without a marker belongs to a database that had accounts.
"""

from __future__ import annotations

from pathlib import Path

from app.config.settings import Settings
from app.runtime.startup_errors import StartupError

KEY_FILE = "secret_keys"
MARKER_FILE = "first-start.incomplete"
FIRST_RUN_FILE = "first-run-link.txt"
"""The link by which the first visitor makes the account, with mode 0600."""


def begin_first_start(data_dir: Path) -> None:
    """Call this before the key file is created. A start that was interrupted after this is still the first one."""
    (data_dir / MARKER_FILE).touch(mode=0o600)


def finish_first_start(data_dir: Path) -> None:
    """Call this when the database holds an account."""
    for name in (MARKER_FILE, FIRST_RUN_FILE):
        (data_dir / name).unlink(missing_ok=True)


def require_database(settings: Settings, database: Path | None) -> None:
    """Call this before SQLite opens `database`, because SQLite deletes the write-ahead log of an empty file. None: PostgreSQL.

    Raises StartupError if the file is missing or empty and a key file or a write-ahead log shows that it had data."""
    if database is None or (database.exists() and database.stat().st_size > 0):
        return
    found = "is empty" if database.exists() else "is missing"
    log = database.with_name(f"{database.name}-wal")
    evidence = [settings.data_dir / KEY_FILE] if _had_accounts(settings) else []
    evidence += [log] if log.exists() and log.stat().st_size > 0 else []
    if evidence:
        raise _database_lost(f"The database {database} {found}", evidence)


def require_accounts(settings: Settings) -> None:
    """Call this when the database holds no account. Raises StartupError if it must have had one."""
    if settings.effective_database_url.startswith("sqlite") and _had_accounts(settings):
        raise _database_lost("The database contains no account", [settings.data_dir / KEY_FILE])


def _had_accounts(settings: Settings) -> bool:
    data_dir = settings.data_dir
    return settings.secret_keys is None and (data_dir / KEY_FILE).exists() and not (data_dir / MARKER_FILE).exists()


def _database_lost(what: str, evidence: list[Path]) -> StartupError:
    files = " and ".join(str(path) for path in evidence)
    verb = "belongs" if len(evidence) == 1 else "belong"
    return StartupError(
        f"{what}, but {files} {verb} to a database that had data. The service does not start empty in its place. Either restore "
        f"a backup of the data directory, or move {files} away to begin with an empty service and new keys."
    )
