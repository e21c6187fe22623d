"""How a database gets its schema: a new one from the tables, one of an older release by the steps in `migrations/versions`.

Either is one transaction under a lock: of several instances that start at once one does the work while the others wait, and a
process that is killed leaves the database as it was. Only an upgrade imports Alembic. A database whose revision is not in the
chain is refused and not changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, create_engine, inspect, text
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.repositories.life import new_life
from adapters.storage.sql.repositories.rollups import READINGS, ROLLUPS
from adapters.storage.sql.session import POSTGRES, SQLITE
from adapters.storage.sql.sqlite.vacuum import BUSY_TIMEOUT_S, INCREMENTAL
from adapters.storage.sql.tables import database_life, event_writers, metadata, readings, rollups
from adapters.storage.sql.tables.columns import WHERE
from domain.events.cursors import MAX_WRITERS
from domain.kernel.errors import Unavailable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine  # imports the ORM, which takes 0.1 s and which SQLite does not need

PROGRESS_TABLE = "move_progress"
"""Exists while `move.py` copies into a database."""
MOVE_MARK_TABLE = "move_begun"
"""Exists in an SQLite file from the moment when `move.py` begins to copy it: what a service wrote after that would be lost."""
UPGRADE_TIMEOUT_S = 3_600.0
"""Of a statement on PostgreSQL, and of the wait for another instance: a step may rewrite the largest table."""
UPGRADE_SETTINGS = {"enable_seqscan": "on"}
"""Of PostgreSQL's session: a step reads whole tables."""
SERVER_CLOCK = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")


def ensure_sqlite_schema(path: Path) -> None:
    """Blocks, so call it in a thread. Errors as of `ensure_schema`."""
    with _opened(str(path)) as connection:
        ensure_schema(connection)


async def ensure_postgres_schema(engine: AsyncEngine) -> None:
    """Errors as of `ensure_schema`."""
    async with engine.connect() as connection:
        await connection.run_sync(ensure_schema)


def read_sqlite_revision(path: Path) -> str | None:
    """None also where there is no file. Blocks, so call it in a thread. Errors as of `ensure_schema`."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    with _opened(f"file:{path}", mode="ro", uri="true") as connection:
        return _read_known_revision(connection)


async def read_postgres_revision(engine: AsyncEngine) -> str | None:
    """Errors as of `ensure_schema`."""
    async with engine.connect() as connection:
        return await connection.run_sync(_read_known_revision)


@contextmanager
def _opened(database: str, **query: str) -> Iterator[Connection]:
    url = URL.create("sqlite", database=database, query=query)
    # Without an isolation level, the driver leaves BEGIN to `ensure_schema`; by itself it begins only before the first row.
    engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_S})
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def ensure_schema(connection: Connection) -> None:
    """Bring the database to HEAD. Raises DatabaseTooNewError, DatabaseTooOldError, ForeignDatabaseError,
    UnfinishedDatabaseMoveError, DatabaseBeingMovedError."""
    found = _read_revision(connection)
    if found == HEAD:
        return
    connection.rollback()
    if found is None and connection.dialect.name == SQLITE:
        connection.exec_driver_sql(f"PRAGMA auto_vacuum = {INCREMENTAL}")  # only before the first transaction
    connection.exec_driver_sql(_BEGIN_ALONE[connection.dialect.name])
    found = _read_revision(connection)  # another instance may have come first
    if found is None:
        _create(connection)
    elif found != HEAD:
        _upgrade(connection, found)
    connection.commit()


_BEGIN_ALONE = {SQLITE: "BEGIN IMMEDIATE", POSTGRES: "SELECT pg_advisory_xact_lock(5492025318)"}
"""One instance at a time; the lock ends with its transaction."""
_STAMP = Table(  # Alembic's own, as it would make it
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def _read_revision(connection: Connection) -> str | None:
    """None for an empty database. Raises ForeignDatabaseError, UnfinishedDatabaseMoveError, DatabaseBeingMovedError."""
    tables = inspect(connection).get_table_names()
    if PROGRESS_TABLE in tables:
        raise UnfinishedDatabaseMoveError
    if MOVE_MARK_TABLE in tables:
        raise DatabaseBeingMovedError(connection.exec_driver_sql(f"SELECT target FROM {MOVE_MARK_TABLE}").scalar())  # noqa: S608
    if _STAMP.name in tables:
        found: str | None = connection.execute(_STAMP.select()).scalar()
        return found
    if tables:
        raise ForeignDatabaseError(tables)
    return None


def _read_known_revision(connection: Connection) -> str | None:
    """One that a start can use or upgrade; None for an empty database. Errors as of `ensure_schema`."""
    found = _read_revision(connection)
    if found is not None:
        _require_known(found)
    return found


def _create(connection: Connection) -> None:
    is_postgres = connection.dialect.name == POSTGRES
    if is_postgres:
        _add_postgres_options()
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):  # SQLite's planner decides a tie by it
            index.create(connection, checkfirst=False)
    if is_postgres:
        _divide_by_time(connection)
        connection.execute(event_writers.insert(), [{"writer": number, "position": 0} for number in range(MAX_WRITERS)])
    connection.execute(database_life.insert().values(row_id=1, life=new_life(), began_ms=0, pending=""))
    _STAMP.create(connection)
    connection.execute(_STAMP.insert().values(version_num=HEAD))


def _add_postgres_options() -> None:
    """What the tables cannot say themselves: an option with the prefix `postgresql_` loads SQLAlchemy's PostgreSQL dialect, which
    a service on SQLite does not need."""
    for index in (index for table in metadata.tables.values() for index in table.indexes if WHERE in index.info):
        index.dialect_kwargs["postgresql_where"] = index.info[WHERE]
    for table, column in ((readings, readings.c.ts), (rollups, rollups.c.hour)):
        table.dialect_kwargs["postgresql_partition_by"] = f"RANGE ({column.name})"


def _divide_by_time(connection: Connection) -> None:
    """Two partitions that leave no gap, up to the end of the present range and from there on (decision 0024)."""
    now_ms = connection.execute(SERVER_CLOCK).scalar_one()
    for table in (READINGS, ROLLUPS):
        bound = table.floor(now_ms // table.unit_ms) + table.width
        for name, values in (("before", f"FROM (MINVALUE) TO ({bound})"), ("after", f"FROM ({bound}) TO (MAXVALUE)")):
            connection.exec_driver_sql(f"CREATE TABLE {table.name}_{name} PARTITION OF {table.name} FOR VALUES {values}")


MIGRATIONS = Path(__file__).with_name("migrations")


def _upgrade(connection: Connection, found: str) -> None:
    _require_known(found)
    from alembic import command  # a start with a current database, or a new one, does not need Alembic
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, HEAD)


def _require_known(revision: str) -> None:
    """Raises DatabaseTooOldError, DatabaseTooNewError."""
    if revision in {script.name.partition("_")[0] for script in (MIGRATIONS / "versions").glob("v*.py")}:
        return
    raise DatabaseTooOldError(revision) if revision.isdigit() else DatabaseTooNewError(revision)


class DatabaseTooNewError(Unavailable):
    code = "DATABASE_TOO_NEW"

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"The database has schema revision {revision}, made by a newer version of Latchboard. This one knows up to {HEAD}. "
            "Start the newer version again, or restore the backup made before the upgrade."
        )


class DatabaseTooOldError(Unavailable):
    """Of a version before 1.0, whose revisions were plain numbers."""

    code = "DATABASE_TOO_OLD"

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"The database has schema revision {revision}, made by a version of Latchboard before 1.0, and cannot be upgraded. "
            "Point LATCHBOARD_DATABASE_URL or LATCHBOARD_DATA_DIR to an empty database. `latchboard export` of the version that "
            "made this one writes projects, devices, rules, keys, grants and webhooks to a file, which `latchboard apply` reads."
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


class DatabaseBeingMovedError(Unavailable):
    code = "MOVE_UNFINISHED"

    def __init__(self, target: str | None) -> None:
        super().__init__(
            f"`latchboard move-to` has begun to move this database to {target}: what a service wrote here now would be lost. Run "
            "the command again to finish the move, or `latchboard move-to --abandon` to stay with SQLite."
        )
