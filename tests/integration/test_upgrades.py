"""From the first released schema to this one, with a row or two in every table: on both databases nothing is lost or changed,
and what comes out has the tables, keys and indexes that a new database has."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql import migrations as scripts
from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.tables import metadata
from support.empty_database import bare_postgres, sqlite_url
from support.storage import STORAGES
from support.table_rows import a_value, all_rows

FIRST = "0001"
ROWS = 2
RENAMED = {("webhooks", "url"): "origin", ("notifications", "membership_id"): "channel_id"}


@asynccontextmanager
async def engine_of(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=NullPool)
    try:
        yield engine
    finally:
        await engine.dispose()


def to_revision(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(scripts.__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def fill(connection: Connection) -> None:
    looking = inspect(connection)
    of_then = MetaData()
    of_then.reflect(connection)
    for name in (table.name for table in of_then.sorted_tables if table.name != "alembic_version"):
        table = metadata.tables[name]
        there = {column["name"] for column in looking.get_columns(name)}
        old_names = {new: old for (of, old), new in RENAMED.items() if of == name}
        for row in range(1, ROWS + 1):
            named = {old_names.get(c.name, c.name): a_value(table, c, row) for c in table.columns}
            connection.execute(
                of_then.tables[name].insert(), {column: value for column, value in named.items() if column in there}
            )
    connection.commit()


def of_then(table: str, rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the columns that they had before the upgrade."""
    return [{name: row[RENAMED.get((table, name), name)] for name in old} for row, old in zip(rows, before, strict=True)]


def is_no_partition(name: str | None, kind: str, _: object) -> bool:
    return kind != "table" or not str(name).endswith(("_before", "_after"))


def differences(connection: Connection) -> list[Any]:
    opts = {"compare_type": True, "compare_server_default": True, "include_name": is_no_partition}
    context = MigrationContext.configure(connection, opts=opts)
    with warnings.catch_warnings():  # PostgreSQL reflects indexes on expressions, and SQLite has none
        warnings.filterwarnings("ignore", message="autogenerate skipping metadata-specified expression-based index")
        return list(compare_metadata(context, metadata))


def foreign_rules(connection: Connection) -> dict[str, list[str]]:
    """Foreign keys with what they do on deletion, and the CHECKs by name: Alembic compares neither."""
    looking = inspect(connection)
    return {
        name: sorted(
            [f"{key['name']} {key['options']}" for key in looking.get_foreign_keys(name)]
            + [str(check["name"]) for check in looking.get_check_constraints(name)]
        )
        for name in looking.get_table_names()
        if name != "alembic_version"
    }


@pytest.mark.parametrize("kind", [kind for kind in STORAGES if kind != "memory"])
async def test_every_row_of_the_first_version_is_there_after_the_upgrade(kind: str, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "latchboard.db") if kind == "sqlite" else await bare_postgres()
    async with engine_of(url) as engine:
        async with engine.connect() as connection:
            await connection.run_sync(to_revision, FIRST)
            await connection.run_sync(fill)
            before = await connection.run_sync(all_rows)
        assert len(before) > 25
        assert all(len(rows) == ROWS for rows in before.values())

        database = SqlDatabase(url)
        await database.start()
        assert await database.revision() == HEAD
        await database.stop()

        async with engine.connect() as connection:
            after = await connection.run_sync(all_rows)
            assert {name: of_then(name, after[name], rows) for name, rows in before.items()} == before
            assert await connection.run_sync(differences) == []
            upgraded = await connection.run_sync(foreign_rules)

    fresh = sqlite_url(tmp_path / "fresh.db") if kind == "sqlite" else await bare_postgres()
    database = SqlDatabase(fresh)
    await database.start()
    await database.stop()
    async with engine_of(fresh) as engine, engine.connect() as connection:
        assert upgraded == await connection.run_sync(foreign_rules)


@pytest.mark.parametrize("kind", [kind for kind in STORAGES if kind != "memory"])
async def test_the_maker_of_a_key_is_found_in_the_log_where_it_can_be_told(kind: str, tmp_path: Path) -> None:
    """An Admin's key must not lose its maker: its requests would no longer count as the Admin's own."""
    url = sqlite_url(tmp_path / "latchboard.db") if kind == "sqlite" else await bare_postgres()
    keys = {"key_1": "sk_live_aaaa", "key_2": "sk_live_bbbb", "key_3": "sk_live_bbbb", "key_4": "sk_live_cccc"}
    log = [("Robot", "aaaa", "user:usr_ada"), ("Twin", "bbbb", "user:usr_ada"), ("Twin", "bbbb", "user:usr_eve")]
    async with engine_of(url) as engine, engine.connect() as connection:
        await connection.run_sync(to_revision, "0009")
        await connection.execute(text("INSERT INTO accounts VALUES ('acc_1', 'Acme', 'free', 1)"))
        for key_id, prefix in keys.items():
            row = {"key": key_id, "prefix": prefix, "hash": key_id.encode(), "on": True}
            columns = "key_id, account_id, name, prefix, secret_hash, enabled, created_ms"
            await connection.execute(
                text(f"INSERT INTO api_keys ({columns}) VALUES (:key, 'acc_1', 'renamed', :prefix, :hash, :on, 1)"), row
            )
        for position, (name, prefix, source) in enumerate(log, 1):
            said = f"API key {name} (sk_live_{prefix}…) was created"
            event = {"at": position, "id": f"evt_{position}", "said": said, "source": source, "public": False}
            columns = "position, event_id, account_id, kind, description, at_ms, source, address, payload, public"
            values = ":at, :id, 'acc_1', 'key_created', :said, 1, :source, '', '{}', :public"
            await connection.execute(text(f"INSERT INTO events ({columns}) VALUES ({values})"), event)
        await connection.commit()
        await connection.run_sync(to_revision, "0010")
        made = dict((await connection.execute(text("SELECT key_id, created_by FROM api_keys"))).all())
    assert made == {"key_1": "user:usr_ada", "key_2": None, "key_3": None, "key_4": None}


@pytest.mark.parametrize("kind", [kind for kind in STORAGES if kind != "memory"])
async def test_a_plain_webhook_url_of_an_older_version_waits_to_be_sealed(kind: str, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "latchboard.db") if kind == "sqlite" else await bare_postgres()
    async with engine_of(url) as engine, engine.connect() as connection:
        await connection.run_sync(to_revision, "0013")
        await connection.run_sync(fill)
        before = (await connection.execute(text("SELECT url FROM webhooks ORDER BY seq"))).scalars().all()
    assert len(before) == ROWS
    database = SqlDatabase(url)
    await database.start()
    await database.stop()
    async with engine_of(url) as engine, engine.connect() as connection:
        rows = await connection.execute(text("SELECT origin, sealed_url FROM webhooks ORDER BY seq"))
        assert [tuple(row) for row in rows] == [(one, None) for one in before]
