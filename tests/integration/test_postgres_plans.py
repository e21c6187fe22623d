"""On PostgreSQL a page of the log and a claim read the rows they give and few besides, by index, however many there are.

`LATCHBOARD_TEST_ROWS` sets how many: enough by default for the planner to tell an index from a table.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy.dialects import postgresql

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.repositories import deliveries, events, grants
from adapters.storage.sql.session import POSTGRES
from support import postgres
from support.storage import emptied

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

ROWS = int(os.environ.get("LATCHBOARD_TEST_ROWS", "40000"))
LIMIT = 50
DEAD, HOOKS = "whk_00", [f"whk_{number:02d}" for number in range(1, 21)]
FILL = f"""
INSERT INTO accounts (account_id, name, plan, created_ms) VALUES ('acc_1', 'Acme', 'free', 0);
INSERT INTO events (event_id, account_id, device_id, device_name, kind, description, at_ms, source, address, payload, public)
  SELECT 'evt_' || i, 'acc_1', 'dev_' || CASE WHEN i % 5 = 0 THEN 0 ELSE i % 1000 END, 'Pump',
         CASE WHEN i % 9999 = 0 THEN 'rare' ELSE 'kind_' || i % 11 END, '', i, 'device', '', '{{}}', i % 11 < 5
  FROM generate_series(1, {ROWS}) AS i;
INSERT INTO deliveries (webhook_id, account_id, device_id, event_id, event_type, data, state, attempts, due_ms, ready_ms, created_ms)
  SELECT CASE WHEN i % 500 = 0 THEN 'whk_' || lpad((1 + i / 500 % 20)::text, 2, '0') ELSE '{DEAD}' END, 'acc_1', 'dev_1', 'evt_' || i,
         'relay_changed', 'x', CASE WHEN i % 3 = 0 THEN 'DELIVERED' ELSE 'PENDING' END, 0, i, i, i
  FROM generate_series(1, {ROWS}) AS i;
INSERT INTO attempts (delivery_id, delivery_no, webhook_id, event_id, event_type, number, created_ms, succeeded)
  SELECT 'whd_' || no, no, webhook_id, event_id, event_type, 1, 0, false FROM deliveries;
ANALYZE
"""


def pages() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    given = {"at_account": "acc_1", "at_limit": LIMIT}
    for before in (None, ROWS // 2):
        for kind in (None, "kind_3", "rare", "never"):
            for device in (None, "dev_0", "dev_7"):
                params = {name: value for name, value in (("at_before", before), ("at_kind", kind), ("at_device", device)) if value}
                statement = events.page(before is not None, kind is not None, device is not None)
                yield f"page before {before} of {kind} on {device}", statement, given | params
                if before is None and (kind or device):
                    yield f"total of {kind} on {device}", events.count(kind is not None, device is not None), given | params


def claims() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    now = {"at_now": ROWS, "at_until": ROWS + 30_000, "at_limit": LIMIT}
    yield "claim", deliveries.CLAIM[POSTGRES], now
    for busy in ([DEAD], [DEAD, *HOOKS[:10]], [DEAD, *HOOKS]):
        yield f"claim beside {len(busy)}", deliveries.CLAIM_OF_OTHERS[POSTGRES], now | {"at_listed": json.dumps(busy)}
    yield "next due", deliveries.NEXT_DUE, {}
    yield "owes", deliveries.OWES, {"at_id": DEAD}
    yield "call off", deliveries.CANCEL[POSTGRES], {"at_id": DEAD, "at_limit": LIMIT}
    yield "left over", deliveries.LEFT_OVER, {}
    yield "forget of", deliveries.FORGET_OF[POSTGRES], {"at_id": DEAD, "at_limit": LIMIT}
    yield "log of attempts", deliveries.LOG, {"at_webhook": DEAD, "at_limit": LIMIT}
    yield "who sees a device", grants.REACH_ON[POSTGRES], {"at_listed": '["dev_1"]'}


ASKED = [*pages(), *claims()]


@pytest.fixture(scope="module")
def filled() -> str:
    """The address of a database with many rows."""

    async def fill() -> str:
        database = SqlDatabase(await emptied())
        await database.start()
        await database.stop()
        connection = await asyncpg.connect(postgres.plain_url())
        await connection.execute(FILL)
        await connection.close()
        return postgres.plain_url()

    return asyncio.run(fill())


@pytest.fixture
async def connection(filled: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connected = await asyncpg.connect(filled)
    yield connected
    await connected.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def read_in_vain(plan: dict[str, Any]) -> list[str]:
    """Steps that read, joined or sorted far more than was wanted."""
    found = []
    for node in nodes(plan):
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if rows > ROWS / 10:
            found.append(f"{node['Node Type']} {node.get('Index Name', node.get('Relation Name', ''))}: {rows}")
    return found


async def explained(connection: asyncpg.Connection[Any], sql: str, *values: Any) -> dict[str, Any]:
    """The plan as it was carried out; what it changed is taken back."""
    change = connection.transaction()
    await change.start()
    try:
        return json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values))[0]["Plan"]  # type: ignore[no-any-return]
    finally:
        await change.rollback()


@pytest.mark.parametrize(("statement", "params"), [one[1:] for one in ASKED], ids=[one[0] for one in ASKED])
async def test_it_reads_by_index_what_it_gives(connection: asyncpg.Connection[Any], statement: Any, params: dict[str, Any]) -> None:
    compiled = statement.compile(dialect=postgresql.dialect(paramstyle="named"))
    sql, values = str(compiled), {**compiled.params, **params}
    for name in sorted(values, reverse=True):
        sql = sql.replace(f":{name}", "NULL" if values[name] is None else repr(values[name]))
    plan = await explained(connection, sql)
    assert not read_in_vain(plan), json.dumps(plan, indent=1)


async def test_a_turns_ends_are_written_by_index(connection: asyncpg.Connection[Any]) -> None:
    numbers = list(range(1, 33))
    ended = await explained(connection, deliveries.FINISH_LISTED, numbers, ["DELIVERED"] * 32, [1] * 32, [0] * 32)
    assert not read_in_vain(ended), json.dumps(ended, indent=1)
    ids = [f"whd_{number}" for number in numbers]
    values = ([1] * 32, [200] * 32, [None] * 32, [True] * 32, [7] * 32, [None] * 32)
    logged = await explained(connection, deliveries.END_LISTED, ids, *values)
    assert not read_in_vain(logged), json.dumps(logged, indent=1)
