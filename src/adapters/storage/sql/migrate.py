"""Upgrades the schema to this program's version, and rejects a database that is newer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.sqlite.vacuum import INCREMENTAL
from domain.kernel.errors import Unavailable

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
