"""Every statement finds its rows by an index; those that read a whole table are named here, with the reason."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.expression import ClauseElement, Select, TextClause, UpdateBase

from adapters.storage.sql import repositories
from adapters.storage.sql.bulk_insert import BulkStatement
from adapters.storage.sql.repositories import approvals, events
from adapters.storage.sql.session import SQLITE
from adapters.storage.sql.sqlite.connection import compile_statement
from adapters.storage.sql.tables import metadata

SMALL_OR_AT_START = {
    "accounts.ANY_ACCOUNT": "stops at the first row",
    "accounts.ALL_ACCOUNTS": "a handful of accounts",
    "devices.DELETING": "once after a deletion, by a reader, and few are found",
    "devices.GRAVES": "devices deleted in the last quarter of an hour",
    "devices.ADMITTED": "all of them are wanted, once at start",
    "devices.COUNT_CREDENTIALS": "counted once a rotation of keys, for its progress bar",
    "events.NUMBERED": "a row for each table that counts",
    "telemetry.NAMES": "all of them are wanted, once at start",
    "telemetry.UNITS": "all of them are wanted, once at start",
    "telemetry.LATEST": "all of them are wanted, once at start",
    "webhooks.COUNT": "counted once a rotation of keys, for its progress bar",
}
ONLY_POSTGRESQL = ("WHOLE", "ONE_AT_A_TIME", "NUMBERS", "DUE_LOCKED", "IN_SLOT_LOCKED", "LOCK")
SORTS_A_HANDFUL = {
    "deliveries.CLAIM_OF_OTHERS",
    "accounts.ALL_ACCOUNTS",
    "accounts.MEMBERS",
    "commands.OF_ALL",
    "commands.OF_DEVICE",
    "commands.OF_TYPE",
    "facing.DEFINITIONS",
    "grants.ON_DEVICE",
    "grants.OF_KEY_ON",
    "grants.OF_MEMBERSHIP_ON",
    "telemetry.METRICS",
    "webhooks.LIVE",
}
"""Rows of one device, one key or one account's keys: tens."""


def _statements() -> Iterator[tuple[str, ClauseElement]]:
    for module in pkgutil.iter_modules(repositories.__path__):
        loaded = importlib.import_module(f"{repositories.__name__}.{module.name}")
        for name, value in vars(loaded).items():
            if name.isupper() and not name.startswith("_"):
                found = value.get(SQLITE) if isinstance(value, dict) else value
                if isinstance(found, BulkStatement):
                    yield f"{module.name}.{name}", text(found.sqlite_sql.replace("?", ":at_rows"))
                elif isinstance(found, (Select, UpdateBase, TextClause)) and not name.startswith(ONLY_POSTGRESQL):
                    yield f"{module.name}.{name}", found
    for shape in range(8):
        yield f"events.page({shape})", events.page_statement(bool(shape & 1), bool(shape & 2), bool(shape & 4))
    for shape in range(1, 4):
        yield f"events.count({shape})", events.count_statement(bool(shape & 1), bool(shape & 2))
        yield f"approvals.listing({shape})", approvals.list_statement(bool(shape & 1), bool(shape & 2))


STATEMENTS = {name: statement for name, statement in _statements() if re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", str(statement))}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path: Path = tmp_path_factory.mktemp("plans") / "db"
    engine = create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    engine.dispose()
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def _plan(database: sqlite3.Connection, statement: ClauseElement) -> list[str]:
    names = re.findall(r":(at_\w+)", str(statement))
    keys = dict.fromkeys(names, 1) | ({"at_listed": "[]"} if "at_listed" in names else {})
    if not isinstance(statement, (TextClause, Select, Insert)) and "SET " in str(statement):
        keys[list(statement.table.columns)[-1].name] = 1  # type: ignore[attr-defined]
    prepared = compile_statement(statement, keys)
    rows = database.execute("EXPLAIN QUERY PLAN " + prepared.sql, [0] * prepared.sql.count("?")).fetchall()
    return [row[3] for row in rows]


def test_the_statements_are_all_here() -> None:
    assert len(STATEMENTS) > 110


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_uses_an_index(database: sqlite3.Connection, name: str) -> None:
    plan = _plan(database, STATEMENTS[name])
    scans = [
        step
        for step in plan
        if step.startswith("SCAN")
        and not re.match(r"SCAN (hop|hooks|json_each|r VIRTUAL TABLE|CONSTANT ROW|\(subquery|\d+ CONSTANT)", step)
    ]
    by_partial_index = [step for step in scans if re.search(r"USING (COVERING )?INDEX ix_\w+__(online|enabled|queued)\b", step)]
    if name not in SMALL_OR_AT_START:
        assert scans == by_partial_index, plan


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_reads_its_rows_in_order(database: sqlite3.Connection, name: str) -> None:
    if name not in SORTS_A_HANDFUL:
        assert not [step for step in _plan(database, STATEMENTS[name]) if "TEMP B-TREE" in step]
