"""A database of an older version is brought to this one with what it holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql import migrations as scripts
from domain.kernel.ids import AccountId, DeviceId
from support.empty_database import sqlite_url

HOUR_MS = 3_600_000
HOURS = [(device, hour) for device in (1, 2, 40) for hour in (0, 1, 7, 497_000, 497_001)]


def at_revision(path: Path, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(scripts.__file__).parent))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


async def test_hours_that_have_readings_are_marked_to_be_summed_up(tmp_path: Path) -> None:
    at_revision(tmp_path / "db", "0001")
    old = sqlite3.connect(tmp_path / "db")
    rows = [(no, hour * HOUR_MS + ms, 1, b"") for no, hour in HOURS for ms in (0, 1, HOUR_MS - 1)]
    old.executemany("INSERT INTO readings VALUES (?, ?, ?, ?)", rows)
    old.commit()
    old.close()
    database = SqlDatabase(sqlite_url(tmp_path / "db"))
    await database.start()
    async with database.uow.read() as tx:
        marks = await tx.due_rollups.list_before(10**9, 100)
    await database.stop()
    assert sorted((device, hour) for device, hour, _ in marks) == HOURS


async def test_a_database_without_readings_has_nothing_to_sum_up(tmp_path: Path) -> None:
    at_revision(tmp_path / "db", "0001")
    database = SqlDatabase(sqlite_url(tmp_path / "db"))
    await database.start()
    async with database.uow.read() as tx:
        assert list(await tx.due_rollups.list_before(10**9, 100)) == []
    await database.stop()


async def test_the_log_of_an_older_version_is_counted_by_kind_and_device(tmp_path: Path) -> None:
    at_revision(tmp_path / "db", "0003")
    old = sqlite3.connect(tmp_path / "db")
    old.execute("INSERT INTO accounts (account_id, name, plan, created_ms) VALUES ('acc_a', 'Acme', 'free', 0)")
    for number, (device, kind) in enumerate([("dev_a", "x"), ("dev_a", "x"), ("dev_b", "x"), ("dev_a", "y"), (None, "y")]):
        old.execute(
            "INSERT INTO events (event_id, account_id, device_id, kind, description, at_ms, source, address, payload, public)"
            " VALUES (?, 'acc_a', ?, ?, '', 0, '', '', '{}', 0)",
            (f"evt_{number}", device, kind),
        )
    old.commit()
    old.close()
    database = SqlDatabase(sqlite_url(tmp_path / "db"))
    await database.start()
    async with database.uow.read() as tx:
        account, device = AccountId("acc_a"), DeviceId("dev_a")
        assert await tx.events.count(account, kind="x") == 3
        assert await tx.events.count(account, device_id=device) == 3
        assert await tx.events.count(account, kind="y", device_id=device) == 1
    await database.stop()
