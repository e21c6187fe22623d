"""A database that a start refuses is not changed, and its files are closed to other users."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from adapters.storage.sql import (
    DatabaseTooNewError,
    DatabaseTooOldError,
    DatabaseUnusableError,
    ForeignDatabaseError,
    SqlDatabase,
)
from adapters.storage.sql.migrations import HEAD
from support.empty_database import sqlite_url
from support.storage import an_account


async def _start_and_stop(path: Path) -> None:
    database = SqlDatabase(sqlite_url(path))
    try:
        await database.start()
    finally:
        await database.stop()


def _execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


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


@pytest.mark.parametrize(
    ("revision", "error", "advice"),
    [
        ("v9999", DatabaseTooNewError, r"v9999.*newer version.*backup"),
        ("0035", DatabaseTooOldError, r"0035.*before 1\.0.*empty database.*latchboard export"),
    ],
)
async def test_a_database_of_a_version_that_the_chain_does_not_know_is_rejected_and_not_changed(
    tmp_path: Path, revision: str, error: type[Exception], advice: str
) -> None:
    path = tmp_path / "db"
    await _start_and_stop(path)
    _execute(path, f"UPDATE alembic_version SET version_num = '{revision}'")
    before = path.read_bytes()
    with pytest.raises(error, match=advice):
        await _start_and_stop(path)
    with pytest.raises(error, match=advice):
        await SqlDatabase(sqlite_url(path)).revision()
    assert path.read_bytes() == before


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
