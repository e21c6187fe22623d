"""The database for the composition root: `start` opens and migrates it, `check` checks it, `stop` closes it.

Upgrades the schema to this program's version, and rejects a database that is newer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, inspect, make_url, text
from sqlalchemy.pool import NullPool

from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.probes import session_settings
from adapters.storage.sql.sqlite.backend import SqliteBackend
from adapters.storage.sql.sqlite.vacuum import INCREMENTAL, release_step
from adapters.storage.sql.unit_of_work import SqlBackend, SqlTransaction, SqlUnitOfWork
from domain.events.ports import TransactionEventDispatcher
from domain.kernel.errors import DomainError, Unavailable

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.ext.asyncio import AsyncEngine  # imports the ORM, which takes 0.1 s and which SQLite does not need

PROGRESS_TABLE = "move_progress"
"""Exists while `move.py` copies into a database."""
_MIGRATIONS_DIR = Path(__file__).with_name("migrations")
_LOCK_MIGRATION = text("SELECT pg_advisory_lock(5492025318)")
_UNLOCK_MIGRATION = text("SELECT pg_advisory_unlock(5492025318)")


class DatabaseTooNewError(Unavailable):
    code = "DATABASE_TOO_NEW"

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"The database has schema revision {revision}, made by a newer version of Latchboard. This one knows up to {HEAD}. "
            "Start the newer version again, or restore the backup made before the upgrade."
        )


class ForeignDatabaseError(Unavailable):
    code = "DATABASE_FOREIGN"

    def __init__(self, tables: list[str]) -> None:
        super().__init__(
            f"The database contains tables of another program ({', '.join(tables[:5])}). "
            "Point LATCHBOARD_DATABASE_URL or LATCHBOARD_DATA_DIR to an empty database."
        )


class UnfinishedDatabaseMoveError(Unavailable):
    code = "MOVE_UNFINISHED"

    def __init__(self) -> None:
        super().__init__(
            "`latchboard move-to` into this database is not finished, so it holds only a part of the data. Run the command again "
            "with the settings of the SQLite service; it continues."
        )


def read_revision(connection: Connection) -> str | None:
    """The schema's revision; None for an empty database. Raises ForeignDatabaseError, UnfinishedDatabaseMoveError."""
    tables = inspect(connection).get_table_names()
    if PROGRESS_TABLE in tables:
        raise UnfinishedDatabaseMoveError
    if "alembic_version" in tables:
        found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return found
    if tables:
        raise ForeignDatabaseError(tables)
    return None


def check_revision(connection: Connection) -> str | None:
    """The schema's revision, which a start can use or upgrade; None for an empty database. Changes nothing.

    Raises DatabaseTooNewError, ForeignDatabaseError."""
    found = read_revision(connection)
    if found is not None and found != HEAD:
        _require_known(found, _alembic_config())
    return found


def migrate_sqlite(engine: Engine) -> None:
    """Upgrade to HEAD; blocks, so call it in a thread. Raises DatabaseTooNewError, ForeignDatabaseError."""
    with engine.connect() as connection:
        if read_revision(connection) is None:
            connection.exec_driver_sql(f"PRAGMA auto_vacuum = {INCREMENTAL}")  # only before the first table
        _upgrade_to_head(connection)


async def migrate_postgres(engine: AsyncEngine) -> None:
    """Upgrade to HEAD. One instance migrates while the others wait for the advisory lock."""
    async with engine.connect() as connection:
        await connection.execute(_LOCK_MIGRATION)
        try:
            await connection.run_sync(_upgrade_to_head)
        finally:
            await connection.rollback()
            await connection.execute(_UNLOCK_MIGRATION)


def _upgrade_to_head(connection: Connection) -> None:
    found = read_revision(connection)
    if found != HEAD:
        _upgrade(connection, found)
        connection.commit()


def _upgrade(connection: Connection, found: str | None) -> None:
    from alembic import command  # imported here: a start with a current database does not need Alembic

    config = _alembic_config()
    if found is not None:
        _require_known(found, config)
    connection.rollback()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _alembic_config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS_DIR))
    config.set_main_option("path_separator", "os")
    return config


def _require_known(revision: str, config: Config) -> None:
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    try:
        known = ScriptDirectory.from_config(config).get_revision(revision)
    except CommandError:
        known = None
    if known is None:
        raise DatabaseTooNewError(revision)


Result = TypeVar("Result")
MIGRATION_TIMEOUT_S = 3_600.0
"""Of a statement: some read or rewrite the largest table."""


_SERVER_CLOCK = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


class DatabaseUnusableError(Unavailable):
    code = "DATABASE_UNUSABLE"


class SqlDatabase:
    """`url`: `sqlite+aiosqlite:////path/to/file` or `postgresql+asyncpg://user:password@host/name`.

    `acquire_timeout_s` limits every wait for the writer, a reader or a connection; then comes Unavailable.
    `transaction_timeout_s` limits a transaction on SQLite and a statement on PostgreSQL. `pool_size` is the number of readers
    on SQLite and of connections on PostgreSQL. `instance`: its member of the cluster, whose sessions others
    may end; those `for_membership` they do not end, and a crash of the server may undo their last commits.
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
    ) -> None:
        self._url = make_url(url)
        self._path: Path | None = None
        self._backend: SqlBackend
        self._migrate: Callable[[], Awaitable[None]]
        self._inspect: Callable[[], Awaitable[str | None]]
        if self._url.get_backend_name() == "sqlite":
            self._path = path = _require_path(self._url.database)
            self._backend = SqliteBackend(
                path,
                readers=pool_size,
                acquire_timeout_s=acquire_timeout_s,
                transaction_timeout_s=transaction_timeout_s,
                busy_timeout_ms=int(acquire_timeout_s * 1000),
            )
            self._migrate = lambda: asyncio.to_thread(_migrate_file, path)
            self._inspect = lambda: asyncio.to_thread(_inspect_file, path)
        else:
            self._backend, self._migrate, self._inspect = _create_postgres(
                self._url,
                pool_size,
                acquire_timeout_s,
                transaction_timeout_s,
                session_settings(instance, for_membership=for_membership),
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
        """Open and migrate the database. Raises DatabaseUnusableError, DatabaseTooNewError, ForeignDatabaseError, Unavailable."""
        if self._path is not None:
            _create_file(self._path)
        await self._translate(self._migrate())
        await self._backend.start()

    async def release_space(self) -> int:
        """Give some of the space of deleted rows back to the file system. Returns the released pages; 0 when there is no more, or
        when the server does this itself. Raises Unavailable."""
        return 0 if self._path is None else await asyncio.to_thread(release_step, self._path)

    async def revision(self) -> str | None:
        """The schema's revision; None when there is no file, or no table in it. Creates and changes nothing.

        Raises DatabaseUnusableError, DatabaseTooNewError, ForeignDatabaseError."""
        return await self._translate(self._inspect())

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
            [[now_ms]] = await session.read(_SERVER_CLOCK)
        return int(now_ms)

    def abort_connections(self) -> None:
        """Call it when the server does not answer: what waits for it fails with Unavailable, what comes next connects anew."""
        self._backend.abort_connections()

    async def check(self) -> None:
        """Raises Unavailable if reading or writing is not possible now."""
        await self._backend.check()


def _create_postgres(
    url: URL, pool_size: int, acquire_timeout_s: float, transaction_timeout_s: float, settings: Mapping[str, str]
) -> tuple[SqlBackend, Callable[[], Awaitable[None]], Callable[[], Awaitable[str | None]]]:
    from adapters.storage.sql.postgres.backend import (
        PostgresBackend,  # imported here so that SQLite starts faster
        create_pooled_engine,
    )

    engine = create_pooled_engine(
        url,
        pool_size=pool_size,
        acquire_timeout_s=acquire_timeout_s,
        transaction_timeout_s=transaction_timeout_s,
        settings=settings,
    )

    async def migrate() -> None:
        patient = create_pooled_engine(
            url, pool_size=1, acquire_timeout_s=acquire_timeout_s, transaction_timeout_s=MIGRATION_TIMEOUT_S
        )
        try:
            await migrate_postgres(patient)
        finally:
            await patient.dispose()

    async def inspect() -> str | None:
        async with engine.connect() as connection:
            return await connection.run_sync(check_revision)

    return PostgresBackend(engine, acquire_timeout_s=acquire_timeout_s), migrate, inspect


def _migrate_file(path: Path) -> None:
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)
    try:
        migrate_sqlite(engine)
    finally:
        engine.dispose()


def _inspect_file(path: Path) -> str | None:
    if not path.exists() or path.stat().st_size == 0:
        return None
    engine = create_engine(URL.create("sqlite", database=f"file:{path}", query={"mode": "ro", "uri": "true"}), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return check_revision(connection)
    finally:
        engine.dispose()


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
