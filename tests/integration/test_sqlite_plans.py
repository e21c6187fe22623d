"""Every statement finds its rows by an index. The exceptions that read a whole table are listed here, with the reason."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ColumnElement, Executable, create_engine, text
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.expression import ClauseElement, Select, TextClause, UpdateBase

from adapters.storage.sql import repositories, tables
from adapters.storage.sql.mapping import EntityStatements
from adapters.storage.sql.repositories import commands, events, provisioning, schedules
from adapters.storage.sql.session import SQLITE
from adapters.storage.sql.sqlite.connections import compile_statement
from adapters.storage.sql.statements import BulkStatement, during, page_start
from adapters.storage.sql.tables import metadata
from domain.kernel.clock import TimeSpan

SMALL_OR_AT_START = {
    "accounts.HAS_ACCOUNT": "stops at the first row",
    "accounts.LIST_ACCOUNT_IDS": "a handful of accounts",
    "commands.COUNT_ALL_PENDING": "reads the partial index of pending approvals, for a metric",
    "commands.SHIFT_EXPIRY": "reads the index of open commands, at start and when the clock is set",
    "device_state.COUNT": "reads an index of at most 100,000 entries, for a metric",
    "device_state.DELETE_ALL": "an operator's command",
    "device_state.DELETE_OLDEST": "reads the keys of at most 100,000 rows, when a message is set aside",
    "device_state.LIST_LETTERS": "an operator's command",
    "device_state.LIST_BY_DEVICE": "an operator's command",
    "device_state.MARK_ALL": "an operator's command",
    "devices.COUNT_DEAD_LETTERS": "reads the messages set aside, which are few, at most 100,000",
    "devices.SKIP_SCHED_REVS": "after a restore, once",
    "devices.LIST_DELETING": "runs once after a deletion, on a reader, and finds few rows",
    "devices.LIST_TOMBSTONES": "devices deleted in the last quarter of an hour",
    "device_state.LIST_ACTIVE_WITH_CREDENTIALS": "reads all rows, once at start",
    "device_state.COUNT_CREDENTIALS": "runs once per key rotation, for its progress bar",
    "audit_log.HEADS": "reads a row per account and writer, once an hour",
    "audit_log.LAST_SEALS": "reads the keys of all seals, once an hour",
    "events.NEXT_ON_SQLITE": "one row per table with a counter, and one per account of the events",
    "stored_responses.COUNT_RESPONSES": "runs once per key rotation, for its progress bar",
    "sign_in.COUNT_TOTP": "runs once per key rotation, for its progress bar",
    "notifications.COUNT_SEALED": "runs once per key rotation, for its progress bar",
    "api_keys.LIST_SECRETS": "a handful of rows, once per key rotation",
    "notifications.COUNT": "reads an index of at most 500 entries a channel, for a metric",
    "schedules.LIST_DECIDED_AFTER": "reads pages of all slots, when the clock was set or a doubt ends",
    "schedules.LIST_DECIDED_AFTER_FOR_UPDATE": "is the same on PostgreSQL",
    "telemetry.LIST_METRIC_NAMES": "reads all rows, once at start",
    "schedules.LIST_LEFT_TO_RESOLVE": "reads the edges left to devices, which are few",
    "telemetry.LIST_LATEST": "reads all rows, once at start",
    "webhook_deliveries.ANY_RECOVERY": "reads one row",
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
ONLY_IN_CLUSTERS = {
    "cluster.END_SESSIONS",
    "cluster.LIST",
    "cluster.LIST_MEMBERS",
    "cluster.ROW",
    "device_state.ABANDON",
    "rules.LIST_CHECKPOINTS",
    "rules.LIST_ENABLED_RULES",
    "rules.LIST_NEWER_THAN_CHECKPOINT",
}
"""They run on PostgreSQL only; test_partition_plans.py looks at those plans."""
SORTS_FEW_ROWS = {
    "commands.APPROVALS.list",  # is never run, nor is the next one: these lists are read by pages
    "provisioning.CLAIMS.list",
    "accounts.LIST_ACCOUNT_IDS",
    "accounts.LIST_MEMBERS",
    "commands.APPLYING_DEFINITIONS",
    "commands.LIST_BY_DEVICE",
    "commands.LIST_BY_DEVICES_AND_TYPES",
    "commands.LIST_BY_TYPE",
    "webhook_deliveries.CLAIM_EXCEPT",
    "grants.LIST_BY_DEVICE",
    "schedules.LIST_LEFT_TO_RESOLVE",
    "notifications.COUNT_PENDING",
    "notifications.LIST_BY_MEMBER",
    "sign_in.LIST",
    "api_keys.LIST_OPEN",
    "telemetry.LIST_METRICS",
    "sign_in.LIST_OPEN",
    "webhooks.LIST_ENABLED",
}
"""Rows of one device, one key or one account's keys, edges of devices that are back: tens. COUNT_PENDING groups what is due to the channels of an account."""


def _statements() -> Iterator[tuple[str, ClauseElement]]:
    for module in pkgutil.iter_modules(repositories.__path__):
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


STATEMENTS = {
    name: statement
    for name, statement in _statements()
    if name not in ONLY_IN_CLUSTERS and re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", str(statement))
}


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
        and not re.match(r"SCAN (hop|hooks|counted|json_each|r VIRTUAL TABLE|CONSTANT ROW|\(subquery|\d+ CONSTANT)", step)
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


OF_A_TIME: dict[str, tuple[Select[Any], ColumnElement[int], str]] = {
    "executions": (commands.PAGE_BEHIND, tables.executions.c.created_ms, "device_id=?"),
    "approvals": (commands.list_statement(False, False, True), tables.approvals.c.created_ms, "account_id=?"),
    "approvals of a device": (commands.list_statement(True, False, True), tables.approvals.c.created_ms, "device_id=?"),
    "approvals of a device and a status": (
        commands.list_statement(True, True, True),
        tables.approvals.c.created_ms,
        "device_id=?",
    ),
    "approvals of a status": (
        commands.list_statement(False, True, True),
        tables.approvals.c.created_ms,
        "account_id=? AND status=?",
    ),
    "claims": (provisioning.LIST_CLAIMS[False, True], tables.device_claims.c.created_ms, "account_id=?"),
    "claims of a status": (provisioning.LIST_CLAIMS[True, True], tables.device_claims.c.created_ms, "account_id=? AND status=?"),
    "ended schedules": (schedules.LIST_HISTORY_BEHIND, tables.schedules.c.updated_ms, "device_id=?"),
    "events of a device": (events.DEVICE_LOG_BEFORE, tables.events.c.at_ms, "device_id=?"),
}
"""Lists with `since` and `until`; what their index is searched for beside the time. `GET /events` and the deliveries of a webhook are
in the order in which they were written, which is another one than that of their times once a clock was set: with `until` they read
the newer ones of the account, or of the webhook."""


@pytest.mark.parametrize("name", OF_A_TIME)
@pytest.mark.parametrize("since", [None, 1])
def test_a_list_of_a_time_long_ago_reads_nothing_newer(database: sqlite3.Connection, name: str, since: int | None) -> None:
    """The end of the time is the position behind which the list begins."""
    start, rest = page_start(None, TimeSpan(since, 9))
    assert (start, rest.until_ms) == ((9, 0), None)
    assert page_start((7, 3), TimeSpan(None, 9))[0] == (7, 3)
    assert page_start((9, 3), TimeSpan(None, 9))[0] == (9, 0)
    statement, time, found_by = OF_A_TIME[name]
    [step] = _plan(database, during(statement, time, rest)[0])
    times = f"{time.name}>? AND {time.name}<?" if since else f"{time.name}<?"
    assert step.endswith(f"({found_by} AND {times})"), step
