"""On PostgreSQL a query of readings reads the days that it asks for, by index, and an expired day is dropped without reading rows."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.repositories import rollups, telemetry
from adapters.storage.sql.session import POSTGRES
from domain.kernel.clock import DAY_MS, HOUR_MS
from support import postgres
from support.empty_database import bare_postgres
from support.query_plans import connect_with_plan_mode, explain, oversized_steps, prepare, values
from support.storage import NOW

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

DAYS, DEVICES, PER_DAY = 40, 50, 24
TODAY = NOW // DAY_MS * DAY_MS
FIRST = TODAY - (DAYS - 1) * DAY_MS
FILL = f"""
INSERT INTO readings (device_no, ts, digest, packed)
  SELECT device, {FIRST} + at * {DAY_MS // PER_DAY}::bigint, 1, 'x'
  FROM generate_series(1, {DEVICES}) AS device, generate_series(0, {DAYS * PER_DAY - 1}) AS at;
INSERT INTO rollups (device_no, hour, packed)
  SELECT device, {FIRST // HOUR_MS} + at, 'x' FROM generate_series(1, {DEVICES}) AS device, generate_series(0, {DAYS * 24 - 1}) AS at;
INSERT INTO device_latest (device_no, ts, packed) SELECT i, {TODAY + DAY_MS // 2}, 'x' FROM generate_series(1, {DEVICES}) AS i;
ANALYZE
"""
A_DAY = {"at_device": 7, "at_since": TODAY - 9 * DAY_MS, "at_until": TODAY - 8 * DAY_MS, "at_limit": 100}
WHOLE = A_DAY | {"at_since": 0, "at_until": 2**52, "at_limit": 10}
CURSOR = {"at_device": 7, "at_digest": -1, "at_limit": 10}
AFTER = {"at_device": 7, "at_after_ts": A_DAY["at_since"], "at_after_digest": -1}
RANGES = json.dumps([[device, A_DAY["at_since"], A_DAY["at_until"]] for device in (1, 2, 3)])
HOURS_OF_A_DAY = {"at_device": 7, "at_from": TODAY // HOUR_MS - 24, "at_until": TODAY // HOUR_MS, "at_limit": 100}
STATEMENTS = {
    "a day": (telemetry.LIST_NEWEST_FIRST, A_DAY, PER_DAY, 1),
    "a day, oldest first": (telemetry.LIST_OLDEST_FIRST, A_DAY, PER_DAY, 1),
    "the newest of all": (telemetry.LIST_NEWEST_FIRST, WHOLE, 10, math.inf),
    "the oldest of all": (telemetry.LIST_OLDEST_FIRST, WHOLE, 10, math.inf),
    "a page of a day, newest first": (
        telemetry.PAGE_NEWEST_FIRST[POSTGRES],
        CURSOR | {"at_since": A_DAY["at_since"], "at_ts": A_DAY["at_until"] - 1},
        10,
        1,
    ),
    "a page of a day, oldest first": (
        telemetry.PAGE_OLDEST_FIRST[POSTGRES],
        CURSOR | {"at_until": A_DAY["at_until"], "at_ts": A_DAY["at_since"]},
        10,
        1,
    ),
    "replay": (
        telemetry.LIST_NEWER_THAN_LATEST[POSTGRES],
        {"at_first": 0, "at_device": 0, "at_ts": -1, "at_digest": 0, "at_limit": 10_000},
        DEVICES * (PER_DAY // 2 - 1),
        math.inf,
    ),
    "old devices": (
        telemetry.LIST_DEVICES_WITH_OLDER[POSTGRES],
        {"at_first": 0, "at_before": TODAY - 30 * DAY_MS, "at_limit": 200},
        0,
        1,
    ),
    "all old devices": (
        telemetry.LIST_DEVICES_WITH_ANY_OLDER,
        {"at_first": 0, "at_before": TODAY - 30 * DAY_MS, "at_limit": 200},
        DEVICES,
        math.inf,
    ),
    "moved messages": (
        telemetry.DELETE_MESSAGES[POSTGRES],
        {"at_device": 7, "at_since": FIRST, "at_until": FIRST, "at_keys": json.dumps([[FIRST, 1], [FIRST, 2]])},
        0,
        2,  # one day, and the table that is changed
    ),
    "the end of a batch to delete": (telemetry.LAST_OF_BATCH, AFTER | {"at_before": 2**52, "at_offset": 9}, 1, 1),
    "a batch to delete": (telemetry.DELETE_UP_TO, AFTER | {"at_ts": A_DAY["at_until"] - 1, "at_digest": 0}, PER_DAY, 2),
    "roll-ups": (rollups.LIST_NEWEST_FIRST, HOURS_OF_A_DAY, 24, 2),
    "roll-ups, oldest first": (rollups.LIST_OLDEST_FIRST, HOURS_OF_A_DAY, 24, 2),
    "roll-ups by key": (rollups.GET[POSTGRES], {"at_listed": json.dumps([[d, TODAY // HOUR_MS - d] for d in (1, 2, 3)])}, 3, 3),
}


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """The partitions that were read, with how they were found."""
    if "Relation Name" in plan and plan["Actual Loops"]:
        yield f"{plan['Relation Name']} by {plan['Node Type']}"
    for child in plan.get("Plans", []):
        yield from scanned(child)


@asynccontextmanager
async def closing(connection: asyncpg.Connection[Any]) -> AsyncIterator[asyncpg.Connection[Any]]:
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def database() -> AsyncIterator[SqlDatabase]:
    opened = SqlDatabase(await bare_postgres())
    await opened.start()
    async with opened.uow.write() as tx:
        await tx.range_partitions.divide_past(FIRST)
        await tx.range_partitions.prepare(TODAY)
    connected = await asyncpg.connect(postgres.plain_url())
    await connected.execute(FILL)
    await connected.close()
    yield opened
    await opened.stop()


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan", "auto"])
async def test_a_query_reads_its_days_by_index(database: SqlDatabase, mode: str) -> None:
    async with closing(await connect_with_plan_mode(mode)) as connection:
        await require_reads_by_index(connection)


async def require_reads_by_index(connection: asyncpg.Connection[Any]) -> None:
    for what, (statement, params, rows, partitions) in STATEMENTS.items():
        plan = await explain(connection, await prepare(connection, statement), *values(statement, params), before=6)
        read = [each for each in scanned(plan) if each.startswith(("readings", "rollups"))]
        assert plan["Actual Rows"] == rows, what
        assert len(read) <= partitions, (what, read)
        assert not [each for each in read if "Seq" in each], (what, read)
        assert not oversized_steps(plan, 20 * DEVICES * PER_DAY), (what, json.dumps(plan, indent=1))


async def test_expired_days_are_dropped_as_tables(database: SqlDatabase) -> None:
    async with database.uow.write() as tx:
        dropped = await tx.range_partitions.drop_before(TODAY - 9 * DAY_MS, 0)
        assert dropped == 30 * DEVICES * PER_DAY
        [[deleted]] = await tx.session.read(text("SELECT sum(n_tup_del) FROM pg_stat_xact_user_tables"))
        assert deleted == 0
        [found] = await tx.session.read(text("SELECT count(*), min(ts) FROM readings"))
        assert tuple(found) == (10 * DEVICES * PER_DAY, TODAY - 9 * DAY_MS)
