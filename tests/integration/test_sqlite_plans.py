"""Every statement finds its rows by an index. The exceptions that read a whole table are listed here, with the reason."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Executable, create_engine, text
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.expression import ClauseElement, Select, TextClause, UpdateBase

from adapters.storage.sql import repositories
from adapters.storage.sql.mapping import EntityStatements
from adapters.storage.sql.repositories import commands, events
from adapters.storage.sql.session import SQLITE
from adapters.storage.sql.sqlite.connections import compile_statement
from adapters.storage.sql.statements import BulkStatement
from adapters.storage.sql.tables import metadata

SMALL_OR_AT_START = {
    "accounts_users_and_projects.HAS_ACCOUNT": "stops at the first row",
    "accounts_users_and_projects.LIST_ACCOUNT_IDS": "a handful of accounts",
    "approvals.COUNT_ALL_PENDING": "reads the partial index of pending approvals, for a metric",
    "command_definitions_and_executions.SHIFT_EXPIRY": "reads the index of open commands, at start and when the clock is set",
    "dead_letters.COUNT": "reads an index of at most 100,000 entries, for a metric",
    "dead_letters.DELETE_ALL": "an operator's command",
    "dead_letters.DELETE_OLDEST": "reads the keys of at most 100,000 rows, when a message is set aside",
    "dead_letters.LIST": "an operator's command",
    "dead_letters.LIST_BY_DEVICE": "an operator's command",
    "dead_letters.MARK_ALL": "an operator's command",
    "device_search.COUNT_DEAD_LETTERS": "reads the messages set aside, which are few, at most 100,000",
    "devices.LIST_DELETING": "runs once after a deletion, on a reader, and finds few rows",
    "devices.LIST_TOMBSTONES": "devices deleted in the last quarter of an hour",
    "device_credentials.LIST_ACTIVE_WITH_CREDENTIALS": "reads all rows, once at start",
    "device_credentials.COUNT_CREDENTIALS": "runs once per key rotation, for its progress bar",
    "audit_log.HEADS": "reads a row per account and writer, once an hour",
    "audit_log.LAST_SEALS": "reads the keys of all seals, once an hour",
    "event_log_position_reservation.NEXT_ON_SQLITE": "one row per table with a counter, and one per account of the events",
    "events.NEXT_ON_SQLITE": "the same statement",
    "stored_responses.COUNT_RESPONSES": "runs once per key rotation, for its progress bar",
    "second_factors.COUNT_TOTP": "runs once per key rotation, for its progress bar",
    "notification_channels.COUNT_SEALED": "runs once per key rotation, for its progress bar",
    "service_secrets.LIST_SECRETS": "a handful of rows, once per key rotation",
    "notification_settings_and_outbox.COUNT": "reads an index of at most 500 entries a channel, for a metric",
    "readings.LIST_METRIC_NAMES": "reads all rows, once at start",
    "schedule_edges_left_to_offline_devices.LIST_LEFT_OF_ONLINE": "reads the edges left to devices, which are few",
    "readings.LIST_LATEST": "reads all rows, once at start",
    "webhooks.COUNT_SEALED": "runs once per key rotation, for its progress bar",
}
ONLY_POSTGRESQL = (
    "ADVANCE_IDLE",
    "CONTEXT",
    "GET_IN_SLOT_FOR_UPDATE",
    "HEADS_OF_WRITER",
    "LIST_DUE_FOR_UPDATE",
    "LOCK",
    "RESERVE",
    "WRITER_POSITIONS",
)
ONLY_IN_CLUSTERS = {"device_connection_holders", "partition_engine_state", "partitions_and_members"}
"""Their statements run on PostgreSQL only; test_partition_plans.py looks at those plans."""
SORTS_FEW_ROWS = {
    "accounts_users_and_projects.LIST_ACCOUNT_IDS",
    "accounts_users_and_projects.LIST_MEMBERS",
    "command_context.DEFINITIONS",
    "command_definitions_and_executions.LIST_BY_DEVICE",
    "command_definitions_and_executions.LIST_BY_DEVICES_AND_TYPES",
    "command_definitions_and_executions.LIST_BY_TYPE",
    "webhook_deliveries.CLAIM_EXCEPT",
    "grants.LIST_BY_DEVICE",
    "schedule_edges_left_to_offline_devices.LIST_LEFT_OF_ONLINE",
    "notification_channels.COUNT_PENDING",
    "notification_channels.LIST_BY_MEMBER",
    "passkeys.LIST",
    "service_session_tokens.LIST_OPEN",
    "readings.LIST_METRICS",
    "user_sessions.LIST_OPEN",
    "webhooks.LIST_ENABLED",
}
"""Rows of one device, one key or one account's keys, edges of devices that are back: tens. COUNT_PENDING groups what is due to the channels of an account."""


def _statements() -> Iterator[tuple[str, ClauseElement]]:
    for module in pkgutil.iter_modules(repositories.__path__):
        if module.name in ONLY_IN_CLUSTERS:
            continue
        loaded = importlib.import_module(f"{repositories.__name__}.{module.name}")
        for name, value in vars(loaded).items():
            if name.isupper() and not name.startswith("_"):
                found = value.get(SQLITE) if isinstance(value, dict) else value
                if isinstance(found, EntityStatements):
                    common = vars(found) | {"get": found.get[True]}
                    yield from (
                        (f"{module.name}.{name}.{each}", one) for each, one in common.items() if isinstance(one, Executable)
                    )
                elif isinstance(found, BulkStatement):
                    yield f"{module.name}.{name}", text(found.sqlite_sql.replace("?", ":at_rows"))
                elif isinstance(found, (Select, UpdateBase, TextClause)) and not name.startswith(ONLY_POSTGRESQL):
                    yield f"{module.name}.{name}", found
    for shape in range(8):
        yield f"events.page({shape})", events.page_statement(bool(shape & 1), bool(shape & 2), bool(shape & 4))
    for shape in range(1, 4):
        yield f"events.count({shape})", events.count_statement(bool(shape & 1), bool(shape & 2))
        yield f"approvals.listing({shape})", commands.list_statement(bool(shape & 1), bool(shape & 2))


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
    assert set(SMALL_OR_AT_START) | SORTS_FEW_ROWS <= set(STATEMENTS), "an exception names a statement that no longer exists"


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_uses_an_index(database: sqlite3.Connection, name: str) -> None:
    plan = _plan(database, STATEMENTS[name])
    scans = [
        step
        for step in plan
        if step.startswith("SCAN")
        and not re.match(r"SCAN (hop|hooks|json_each|r VIRTUAL TABLE|CONSTANT ROW|\(subquery|\d+ CONSTANT)", step)
    ]
    by_partial_index = [
        step for step in scans if re.search(r"USING (COVERING )?INDEX ix_\w+__(online|enabled|queued|expiry)\b", step)
    ]
    if name not in SMALL_OR_AT_START:
        assert scans == by_partial_index, plan


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_a_statement_reads_its_rows_in_order(database: sqlite3.Connection, name: str) -> None:
    if name not in SORTS_FEW_ROWS:
        assert not [step for step in _plan(database, STATEMENTS[name]) if "TEMP B-TREE" in step]
