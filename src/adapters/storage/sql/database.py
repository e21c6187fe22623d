"""The database for the composition root: `start` opens it and sees to its schema, `check` checks it, `stop` closes it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, make_url

from adapters.storage.sql.probes import SERVICE_SESSIONS, session_settings
from adapters.storage.sql.schema import (
    SERVER_CLOCK,
    UPGRADE_SETTINGS,
    UPGRADE_TIMEOUT_S,
    ensure_postgres_schema,
    ensure_sqlite_schema,
    read_postgres_revision,
    read_sqlite_revision,
)
from adapters.storage.sql.sqlite.backend import SqliteBackend
from adapters.storage.sql.sqlite.vacuum import release_step
from adapters.storage.sql.unit_of_work import SqlBackend, SqlTransaction, SqlUnitOfWork
from domain.events.ports import TransactionEventDispatcher
from domain.kernel.clock import Clock
from domain.kernel.errors import DomainError, Unavailable
from domain.kernel.life import DatabaseLife

Result = TypeVar("Result")


class DatabaseUnusableError(Unavailable):
    code = "DATABASE_UNUSABLE"


class SqlDatabase:
    """`url`: `sqlite+aiosqlite:////path/to/file` or `postgresql+asyncpg://user:password@host/name`.

    `acquire_timeout_s` limits every wait for the writer, a reader or a connection; then comes Unavailable.
    `transaction_timeout_s` limits a transaction on SQLite and a statement on PostgreSQL. `pool_size` is the number of readers
    on SQLite and of connections on PostgreSQL. `instance`: its member of the cluster, whose sessions others
    may end; those `for_membership` they do not end, and a crash of the server may undo their last commits. `life`, with `clock`:
    renewed when PostgreSQL has gone back behind what this process committed.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 6,
        acquire_timeout_s: float = 5.0,
        transaction_timeout_s: float = 30.0,
        instance: str | None = None,
        for_membership: bool = False,
        life: DatabaseLife | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = make_url(url)
        self._path: Path | None = None
        self._backend: SqlBackend
        self._ensure_schema: Callable[[], Awaitable[None]]
        self._read_revision: Callable[[], Awaitable[str | None]]
        if self._url.get_backend_name() == "sqlite":
            self._path = path = _require_path(self._url.database)
            self._backend = SqliteBackend(
                path,
                readers=pool_size,
                acquire_timeout_s=acquire_timeout_s,
                transaction_timeout_s=transaction_timeout_s,
                busy_timeout_ms=int(acquire_timeout_s * 1000),
            )
            self._ensure_schema = lambda: asyncio.to_thread(ensure_sqlite_schema, path)
            self._read_revision = lambda: asyncio.to_thread(read_sqlite_revision, path)
        else:
            self._backend, self._ensure_schema, self._read_revision = _create_postgres(
                self._url,
                pool_size,
                acquire_timeout_s,
                transaction_timeout_s,
                session_settings(instance, for_membership=for_membership),
                None if life is None or clock is None else (life, clock),
            )
        self.uow = SqlUnitOfWork(self._backend)

    @property
    def file(self) -> Path | None:
        """SQLite's file; None for a server."""
        return self._path

    def unit_of_work(self, dispatcher: TransactionEventDispatcher[SqlTransaction] | None = None) -> SqlUnitOfWork:
        """The unit of work that sends its events to `dispatcher`; it replaces `uow`."""
        self.uow = SqlUnitOfWork(self._backend, dispatcher)
        return self.uow

    async def start(self) -> None:
        """Open the database, with the schema of this version. Raises DatabaseUnusableError, Unavailable, and as `revision`."""
        if self._path is not None:
            _create_file(self._path)
        await self._translate(self._ensure_schema())
        await self._backend.start()

    async def release_space(self) -> int:
        """Give some of the space of deleted rows back to the file system. Returns the released pages; 0 when there is no more, or
        when the server does this itself. Raises Unavailable."""
        return 0 if self._path is None else await asyncio.to_thread(release_step, self._path)

    async def revision(self) -> str | None:
        """The schema's revision; None when there is no file, or no table in it. Creates and changes nothing.

        Raises DatabaseUnusableError, DatabaseTooNewError, DatabaseTooOldError, ForeignDatabaseError and
        UnfinishedDatabaseMoveError."""
        return await self._translate(self._read_revision())

    async def _translate(self, work: Awaitable[Result]) -> Result:
        try:
            return await work
        except DomainError:
            raise
        except Exception as error:  # each driver has errors of its own, some without a common base class
            raise DatabaseUnusableError(self._unusable_message(error)) from error

    def _unusable_message(self, error: Exception) -> str:
        """The driver's reason without its SQL statement."""
        reason = str(getattr(error, "orig", None) or error).partition("\n")[0].rstrip(".") or type(error).__name__
        advice = (
            "Check that it belongs to Latchboard and that the service may write to it. If it is damaged, restore a backup."
            if self._path is not None
            else "Check LATCHBOARD_DATABASE_URL, that PostgreSQL is running, and that this user may connect."
        )
        return f"The database {self._url.render_as_string()} cannot be opened: {reason}. {advice}"

    async def stop(self) -> None:
        """Finish open transactions and close. Does nothing if the database never started."""
        await self._backend.stop()

    async def clock_ms(self) -> int | None:
        """The server's clock, Unix ms; None for a file. Raises Unavailable."""
        if self._path is not None:
            return None
        async with self._backend.read() as session:
            [[now_ms]] = await session.read(SERVER_CLOCK)
        return int(now_ms)

    async def count_services(self) -> int:
        """Connections of services to this server's database; 0 for a file, which `InstanceLock` guards. Raises Unavailable."""
        if self._path is not None:
            return 0
        async with self._backend.read() as session:
            [[count]] = await session.read(SERVICE_SESSIONS)
        return int(count)

    def abort_connections(self) -> None:
        """Call it when the server does not answer: what waits for it fails with Unavailable, what comes next connects anew."""
        self._backend.abort_connections()

    async def check(self) -> None:
        """Raises Unavailable if reading or writing is not possible now."""
        await self._backend.check()


def _create_postgres(
    url: URL,
    pool_size: int,
    acquire_timeout_s: float,
    transaction_timeout_s: float,
    settings: Mapping[str, str],
    follows: tuple[DatabaseLife, Clock] | None,
) -> tuple[SqlBackend, Callable[[], Awaitable[None]], Callable[[], Awaitable[str | None]]]:
    from adapters.storage.sql.postgres.backend import (
        PostgresBackend,  # imported here so that SQLite starts faster
        create_pooled_engine,
    )
    from adapters.storage.sql.postgres.continuity import PostgresContinuity

    engine = create_pooled_engine(
        url,
        pool_size=pool_size,
        acquire_timeout_s=acquire_timeout_s,
        transaction_timeout_s=transaction_timeout_s,
        settings=settings,
    )

    async def ensure_schema() -> None:
        patient = create_pooled_engine(
            url,
            pool_size=1,
            acquire_timeout_s=acquire_timeout_s,
            transaction_timeout_s=UPGRADE_TIMEOUT_S,
            settings=UPGRADE_SETTINGS,
        )
        try:
            await ensure_postgres_schema(patient)
        finally:
            await patient.dispose()

    continuity = None if follows is None else PostgresContinuity(*follows)
    backend = PostgresBackend(engine, acquire_timeout_s=acquire_timeout_s, continuity=continuity)
    return (backend, ensure_schema, lambda: read_postgres_revision(engine))


def _require_path(database: str | None) -> Path:
    if not database or database == ":memory:":
        raise DatabaseUnusableError("An SQLite database needs a file, such as sqlite+aiosqlite:///data/latchboard.db.")
    return Path(database)


def _create_file(path: Path) -> None:
    """Create the directory (0700) and the file (0600) while they are empty. SQLite gives its -wal and -shm files the same
    mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError("the directory is not writable")
    except OSError as error:
        raise DatabaseUnusableError(
            f"The database file {path} cannot be written: {error}. "
            "Give the service's user write access to that directory, or set LATCHBOARD_DATA_DIR to another one."
        ) from error
