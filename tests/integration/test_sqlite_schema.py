"""The schema: made by migrations, refused when newer, and closed to other users."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from adapters.storage.sql import DatabaseTooNewError, DatabaseUnusableError, ForeignDatabaseError, SqlDatabase
from adapters.storage.sql import migrations as scripts
from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.tables import metadata
from support.empty_database import sqlite_url
from support.storage import an_account


async def _start_and_stop(path: Path) -> None:
    database = SqlDatabase(sqlite_url(path))
    try:
        await database.start()
    finally:
        await database.stop()


@contextmanager
def _connected(path: Path) -> Iterator[Connection]:
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")  # only on PostgreSQL
async def test_migrations_make_exactly_the_tables_the_program_uses(tmp_path: Path) -> None:
    await _start_and_stop(tmp_path / "db")
    with _connected(tmp_path / "db") as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


async def test_migrations_make_the_same_definitions_to_the_letter(tmp_path: Path) -> None:
    """What Alembic does not compare: CHECKs, partial indexes, WITHOUT ROWID, AUTOINCREMENT."""
    await _start_and_stop(tmp_path / "migrated")
    with _connected(tmp_path / "created") as connection:
        metadata.create_all(connection)
        connection.commit()
    migrated, created = (_definitions(tmp_path / name) for name in ("migrated", "created"))
    assert migrated == created


def _definitions(path: Path) -> dict[str, list[str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    own = [row for row in rows if row[0] not in ("alembic_version", "sqlite_sequence")]
    return {name: sorted(line.strip(" ,\t") for line in _lines(sql)) for name, sql in own}


def _lines(sql: str) -> list[str]:
    """One line per column and constraint. SQLite writes a column that was added later into the line of the last one."""
    lines: list[str] = []
    for line in sql.replace('"', "").splitlines():
        is_constraint = line.lstrip().startswith(("CONSTRAINT", "CREATE"))
        lines += [line] if is_constraint else [part for part in line.split(", ") if part.strip()]
    return lines


def test_the_named_head_is_the_newest_script() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(scripts.__file__).parent))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def test_a_database_keeps_what_it_holds_over_a_second_start(tmp_path: Path) -> None:
    account = an_account()
    for first in (True, False):
        database = SqlDatabase(sqlite_url(tmp_path / "db"))
        await database.start()
        async with database.uow.write() as tx:
            if first:
                await tx.accounts.add(account)
            assert await tx.accounts.get(account.account_id) == account
        assert await database.revision() == HEAD
        await database.check()
        await database.stop()


async def test_a_database_of_a_newer_version_is_rejected_and_not_changed(tmp_path: Path) -> None:
    await _start_and_stop(tmp_path / "db")
    _execute(tmp_path / "db", "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseTooNewError, match=r"9999.*newer version.*backup"):
        await _start_and_stop(tmp_path / "db")
    connection = sqlite3.connect(tmp_path / "db")
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    connection.close()


async def test_a_database_of_another_program_is_rejected(tmp_path: Path) -> None:
    _execute(tmp_path / "db", "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(ForeignDatabaseError, match="recipes"):
        await _start_and_stop(tmp_path / "db")


async def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"dear diary, " * 100)
    with pytest.raises(DatabaseUnusableError, match="Check that it belongs to Latchboard"):
        await _start_and_stop(tmp_path / "db")


async def test_an_error_names_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnusableError, match="LATCHBOARD_DATA_DIR"):
        await _start_and_stop(tmp_path / "file" / "data" / "db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(DatabaseUnusableError, match="write access"):
        await _start_and_stop(tmp_path / "data" / "db")


async def test_the_files_are_closed_to_other_users(tmp_path: Path) -> None:
    database = SqlDatabase(sqlite_url(tmp_path / "data" / "db"))
    await database.start()
    async with database.uow.write() as tx:
        await tx.accounts.add(an_account())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()}
    assert modes == {"db": 0o600, "db-wal": 0o600, "db-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    await database.stop()
