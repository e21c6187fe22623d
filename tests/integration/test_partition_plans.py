"""On PostgreSQL an instance that takes over a partition reads the devices of the partition, and not the fleet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.repositories import rules
from adapters.storage.sql.session import POSTGRES
from domain.partitions.model import hash_range
from support import postgres
from support.empty_database import bare_postgres
from support.query_plans import connect_with_plan_mode, explain, oversized_steps, prepare, values

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

DEVICES = 10_000
PARTITIONS = 64
FILL = f"""
INSERT INTO accounts (account_id, name, plan, created_ms) VALUES ('acc_1', 'Acme', 'free', 0);
INSERT INTO projects (project_id, account_id, name, is_default, created_ms) VALUES ('prj_1', 'acc_1', 'Main', true, 0);
INSERT INTO devices (device_no, device_id, account_id, project_id, name, board_type, app_type, status, profile, tags, created_ms,
                     version, is_online, sched_rev, folded_name, search_text)
  SELECT i, 'dev_' || i, 'acc_1', 'prj_1', 'Pump', 'x', 'x', 'ACTIVE', 'native', '[]', 0, 0, false, 0, 'pump', 'pump'
  FROM generate_series(1, {DEVICES}) AS i;
INSERT INTO device_latest (device_no, ts, packed) SELECT i, 1000, 'x' FROM generate_series(1, {DEVICES}) AS i;
INSERT INTO readings (device_no, ts, digest, packed)
  SELECT i, 990 + at, 1, 'x' FROM generate_series(1, {DEVICES}) AS i, generate_series(1, 11) AS at;
INSERT INTO rules (rule_id, account_id, device_id, device_no, name, conditions, action, enabled, priority, match, clear_conditions,
                   for_seconds, cooldown_seconds, matched, created_ms, revision)
  SELECT 'rul_' || i, 'acc_1', 'dev_' || i, i, 'Hot', '[]', '{{}}', true, 0, 'ALL', '[]', 0, 0, false, 0, 0
  FROM generate_series(1, {DEVICES}) AS i;
ANALYZE
"""
LOW, HIGH = hash_range(5, PARTITIONS)
HASHES = {"at_low": LOW, "at_high": HIGH}
FIRST_PAGE = HASHES | {"at_device": 0, "at_ts": -1, "at_digest": 0, "at_limit": 10_000}
STATEMENTS = {
    "checkpoints": (rules.LIST_CHECKPOINTS, HASHES),
    "rows": (rules.LIST_NEWER_THAN_CHECKPOINT[POSTGRES], FIRST_PAGE),
    "rules": (rules.LIST_ENABLED_RULES, HASHES),
}


@pytest.fixture
async def connection() -> AsyncIterator[asyncpg.Connection[Any]]:
    database = SqlDatabase(await bare_postgres())
    await database.start()
    await database.stop()
    connected = await connect_with_plan_mode("auto")
    await connected.execute(FILL)
    yield connected
    await connected.close()


async def test_a_partition_is_read_by_its_devices(connection: asyncpg.Connection[Any]) -> None:
    for what, (statement, params) in STATEMENTS.items():
        plan = await explain(connection, await prepare(connection, statement), *values(statement, params), before=6)
        assert plan["Actual Rows"] in range(100, 200), what
        assert not oversized_steps(plan, DEVICES / 10), (what, json.dumps(plan, indent=1))
