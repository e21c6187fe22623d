"""What must hold before the service starts, and what the operator reads when it does not: one service per SQLite file, a database
that was not lost, a clock that agrees, enough open files.

A service that had data never starts empty without a word. The key file is created before the database, so a marker file lies
beside it until the database holds an account. A key file without a marker belongs to a database that had accounts.
"""

from __future__ import annotations

import fcntl
import os
import resource
from pathlib import Path

import structlog

from adapters.http.server.hypercorn import UnsupportedHypercornError
from adapters.storage.sql import SqlDatabase
from app.config.settings import Settings, SettingsError
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.errors import Unavailable

KEY_FILE = "secret_keys"
MARKER_FILE = "first-start.incomplete"
FIRST_RUN_FILE = "first-run-link.txt"
"""The link by which the first visitor makes the account, with mode 0600."""
MAX_CLOCK_OFFSET_MS = SECOND_MS
MQTT_SHARE, HTTP_SHARE = 0.6, 0.2
"""Of the files that the process may open. Each connection is one. Strangers at one door must not use up what another door, the
database and the log need, so each has its part, and a fifth stays free."""
MAX_MQTT_CONNECTIONS, MAX_HTTP_CONNECTIONS = 50_000, 10_000
LOW_LIMIT = 4_096
_UNLIMITED = 1_048_576

log = structlog.get_logger("open_files")


class StartupError(Exception):
    """The service cannot start, or a command of the command line cannot run."""


class PortInUseError(Exception):
    """The message names the port and the variable that selects another one."""


def startup_error_message(error: BaseException) -> str | None:
    """The message for the operator; None for an error that is not ours, which deserves a traceback."""
    if isinstance(error, SettingsError | StartupError | PortInUseError | UnsupportedHypercornError):
        return str(error)
    if isinstance(error, Unavailable):
        return error.message
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. Correct the path, or give this user access to it."
    return None


class InstanceLock:
    """Allows one service per SQLite file. Two services would both fire its schedules, apply its rules and send its webhooks.

    The operating system holds the lock for this process and releases it when the process ends in any way. The lock file stays and
    means nothing by itself. Commands of the command line need no lock: SQLite serializes their writes with those of the
    service."""

    def __init__(self, database: Path | None) -> None:
        """`database`: the SQLite file; None for PostgreSQL, which elects the leader itself."""
        self._path = None if database is None else database.with_name(f"{database.name}.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises StartupError while another service holds the lock."""
        if self._path is None or self._descriptor is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(
                f"{self._path} cannot be written: {error.strerror}. Give the service's user write access to that directory, "
                "or set LATCHBOARD_DATA_DIR to another one."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            process = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StartupError(
                f"Another Latchboard service (process {process}) uses {self._path.with_suffix('')}. "
                "Stop it first, or set LATCHBOARD_DATA_DIR to another directory. Several services need PostgreSQL."
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def is_held(self) -> bool:
        """Whether a running service holds the lock. Creates no file."""
        if self._path is None or not self._path.exists():
            return False
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


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


async def find_clock_problem(server: SqlDatabase, clock: Clock) -> str | None:
    """What to do about a clock that is more than a second off the database's; None if it agrees: rules of a cluster follow the
    arrival times of several machines. The time that the question takes counts for neither side."""
    before_ms = clock.now_ms()
    server_ms = await server.clock_ms()
    after_ms = clock.now_ms()
    if server_ms is None or before_ms - MAX_CLOCK_OFFSET_MS <= server_ms <= after_ms + MAX_CLOCK_OFFSET_MS:
        return None
    offset_s, direction = (
        ((before_ms - server_ms) / 1000, "ahead of") if server_ms < before_ms else ((server_ms - after_ms) / 1000, "behind")
    )
    return (
        f"The clock of this machine is {offset_s:.1f} s {direction} the database's. Set up time synchronisation (NTP) on both: "
        "in a cluster, clocks may be at most a second apart."
    )


def raise_limit() -> None:
    """Raise the soft limit to the hard one: it is often 1,024 while the hard limit is a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.info("raised the limit of open files", soft=soft, hard=hard)
    if limit() < LOW_LIMIT:
        log.warning(
            "few files may be open, so few devices and clients can connect. Raise the hard limit, for systemd by LimitNOFILE=",
            limit=limit(),
            mqtt_connections=default_mqtt_connections(),
            http_connections=default_http_connections(),
        )


def limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def default_mqtt_connections() -> int:
    return min(MAX_MQTT_CONNECTIONS, int(limit() * MQTT_SHARE))


def default_http_connections() -> int:
    return min(MAX_HTTP_CONNECTIONS, int(limit() * HTTP_SHARE))
