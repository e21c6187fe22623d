"""A new database has exactly the tables of the program, on SQLite and PostgreSQL, whoever makes it at the same time."""

from __future__ import annotations

import asyncio
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, Connection, inspect

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.schema import ensure_sqlite_schema
from adapters.storage.sql.tables import metadata
from adapters.storage.sql.tables.columns import WHERE
from support.empty_database import bare_postgres, sqlite_url
from support.storage import STORAGES
from support.stored_schema import engine_of

REWRITTEN = {"IN", "ANY", "ARRAY", "text"}
"""PostgreSQL shows `a IN ('x')` as `a = ANY (ARRAY['x'::text])`."""


@pytest.fixture(params=[kind for kind in STORAGES if kind != "memory"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "latchboard.db") if request.param == "sqlite" else await bare_postgres()


async def start_and_stop(url: str) -> None:
    database = SqlDatabase(url)
    try:
        await database.start()
        assert await database.revision() == HEAD
    finally:
        await database.stop()


def differences(connection: Connection) -> list[Any]:
    """Columns, types, keys and indexes."""
    opts = {"compare_type": True, "compare_server_default": True, "include_name": is_no_partition}
    context = MigrationContext.configure(connection, opts=opts)
    with warnings.catch_warnings():  # `test_upgrades` compares what a database says of them
        warnings.filterwarnings("ignore", message="autogenerate skipping metadata-specified expression-based index")
        warnings.filterwarnings("ignore", message="Skipped unsupported reflection of expression-based index")
        return list(compare_metadata(context, metadata))


def is_no_partition(name: str | None, kind: str, _: object) -> bool:
    return kind != "table" or not str(name).endswith(("_before", "_after"))


def words(condition: object) -> set[str]:
    """Two conditions with the same words are taken for equal: each database writes them in its own way."""
    return set(re.findall(r"'\w*'|<>|[<>=]+|\w+", str(condition))) - REWRITTEN - {"="}


def conditions(connection: Connection) -> dict[str, set[str]]:
    """Of partial indexes and CHECKs, which Alembic does not compare."""
    looking, option = inspect(connection), f"{connection.dialect.name}_where"
    found = {}
    for table in metadata.tables:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Skipped unsupported reflection of expression-based index")
            indexes = looking.get_indexes(table)
        for index in indexes:
            if (where := index.get("dialect_options", {}).get(option)) is not None:
                found[str(index["name"])] = words(where)
        for check in looking.get_check_constraints(table):
            found[str(check["name"])] = words(check["sqltext"])
    return found


def wanted_conditions(dialect: str) -> dict[str, set[str]]:
    wanted = {}
    for table in metadata.tables.values():
        for index in table.indexes:
            if WHERE in index.info:
                on_sqlite = index.dialect_options["sqlite"]["where"]
                wanted[str(index.name)] = words(on_sqlite if dialect == "sqlite" else index.info[WHERE])
        for check in table.constraints:
            if isinstance(check, CheckConstraint):
                wanted[str(check.name)] = words(check.sqltext)
    return wanted


async def test_a_new_database_has_exactly_the_tables_of_the_program(url: str) -> None:
    await start_and_stop(url)
    async with engine_of(url) as engine, engine.connect() as connection:
        assert await connection.run_sync(differences) == []
        assert await connection.run_sync(conditions) == wanted_conditions(engine.dialect.name)
    assert len(wanted_conditions("sqlite")) > 30


async def test_instances_that_start_at_once_make_a_new_database_together(url: str, tmp_path: Path) -> None:
    if url.startswith("sqlite"):  # without the rest of a start: only one service opens a file
        await asyncio.gather(*(asyncio.to_thread(ensure_sqlite_schema, tmp_path / "latchboard.db") for _ in range(4)))
    else:
        await asyncio.gather(*(start_and_stop(url) for _ in range(4)))
    async with engine_of(url) as engine, engine.connect() as connection:
        assert await connection.run_sync(differences) == []
