"""On PostgreSQL a page of the log and a claim read the rows they give and few besides, by index, however many there are: with the
plan that is made for their values, with the one that the server keeps after some times, and with the one that was made while the
tables were empty.

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

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.repositories import events, grants, webhook_deliveries
from adapters.storage.sql.repositories.events import cursor_parameters
from adapters.storage.sql.session import POSTGRES
from domain.events.cursors import EventLogCursor
from support import postgres
from support.empty_database import bare_postgres
from support.query_plans import connect_with_plan_mode, explain, oversized_steps, prepare, values

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

ROWS = int(os.environ.get("LATCHBOARD_TEST_ROWS", "40000"))
LIMIT = 50
DEAD, HOOKS, DONE, LATE = "whk_00", [f"whk_{number:02d}" for number in range(1, 21)], "whk_50", "whk_99"
QUIET = HOOKS[0]
"""Its attempts are older than all others. `DEAD` is owed nearly everything, to `DONE` all has been delivered."""
FILL = f"""
INSERT INTO accounts (account_id, name, plan, created_ms) VALUES ('acc_1', 'Acme', 'free', 0);
INSERT INTO events (event_id, account_id, device_id, device_name, kind, description, at_ms, source, address, payload, public, writer, sequence, hash)
  SELECT 'evt_' || i, 'acc_1', 'dev_' || CASE WHEN i % 5 = 0 THEN 0 ELSE i % 1000 END, 'Pump',
         CASE WHEN i % 9999 = 0 THEN 'rare' ELSE 'kind_' || i % 11 END, '', i, 'device', '', '{{}}', i % 11 < 5, 1, i, ''
  FROM generate_series(1, {ROWS}) AS i;
INSERT INTO deliveries (webhook_id, account_id, device_id, event_id, event_type, data, state, attempts, due_ms, ready_ms, created_ms)
  SELECT CASE WHEN i % 500 = 0 THEN 'whk_' || lpad((1 + i / 500 % 20)::text, 2, '0') ELSE '{DEAD}' END, 'acc_1', 'dev_1', 'evt_' || i,
         'relay_changed', 'x', CASE WHEN i % 3 = 0 THEN 'DELIVERED' ELSE 'PENDING' END, 0, i, i, i
  FROM generate_series(1, {ROWS}) AS i;
INSERT INTO deliveries (webhook_id, account_id, device_id, event_id, event_type, data, state, attempts, due_ms, ready_ms, created_ms)
  SELECT '{DONE}', 'acc_1', 'dev_1', 'evt_' || i, 'relay_changed', 'x'::bytea, 'DELIVERED', 1, i, i, i
    FROM generate_series(1, {ROWS} / 2) AS i
  UNION ALL SELECT '{LATE}', 'acc_1', 'dev_1', 'evt_late', 'relay_changed', 'x'::bytea, 'PENDING', 0, {ROWS}, {ROWS}, 0;
INSERT INTO deliveries (webhook_id, account_id, device_id, event_id, event_type, data, state, attempts, due_ms, ready_ms, created_ms)
  SELECT '{DEAD}', 'acc_1', 'dev_1', 'evt_' || i, 'relay_changed', 'x'::bytea, 'GIVEN_UP', 6, i, i, i
    FROM generate_series(1, {ROWS} / 2) AS i;
INSERT INTO attempts (delivery_id, delivery_no, webhook_id, event_id, event_type, number, created_ms, succeeded)
  SELECT 'whd_' || no, no, webhook_id, event_id, event_type, 1, 0, false FROM deliveries ORDER BY webhook_id <> '{QUIET}', no
"""


def pages() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    given = {"at_account": "acc_1", "at_limit": LIMIT}
    for before in (None, ROWS // 2):
        for kind in (None, "kind_3", "rare", "never"):
            for device in (None, "dev_0", "dev_7"):
                params = {
                    name: value for name, value in (("at_before", before), ("at_kind", kind), ("at_device", device)) if value
                }
                statement = events.page_statement(before is not None, kind is not None, device is not None)
                yield f"page before {before} of {kind} on {device}", statement, given | params
                if before is None and (kind or device):
                    yield (
                        f"total of {kind} on {device}",
                        events.count_statement(kind is not None, device is not None),
                        given | params,
                    )


def unread() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What a cursor does not cover; one writer lags a little behind the others."""
    after = EventLogCursor(ROWS - 200, ((0, ROWS - 50), (3, ROWS - 300)))
    given = {**cursor_parameters(after), "at_account": "acc_1", "at_limit": LIMIT}
    yield "log after a cursor", events.LIST_AFTER[POSTGRES], given
    yield "kinds after a cursor", events.LIST_KINDS_AFTER[POSTGRES], given
    yield "public events after a cursor", events.LIST_PUBLIC_AFTER[POSTGRES], given


def claims() -> Iterator[tuple[str, Any, Any]]:
    now = {"at_now": ROWS, "at_until": ROWS + 30_000, "at_limit": LIMIT}
    yield "claim", webhook_deliveries.CLAIM[POSTGRES], now
    for busy in ([DEAD], [DEAD, *HOOKS[:10]], [DEAD, *HOOKS]):
        yield f"claim beside {len(busy)}", webhook_deliveries.CLAIM_EXCEPT[POSTGRES], now | {"at_listed": json.dumps(busy)}
    yield "next due", webhook_deliveries.NEXT_DUE, {}
    yield "left over", webhook_deliveries.FIND_ORPHANED_WEBHOOK, {}
    yield "who sees a device", grants.REACH_BY_DEVICES, {"at_listed": '["dev_1"]'}
    for webhook_id in (DEAD, QUIET, DONE, LATE):
        yield f"owes {webhook_id}", webhook_deliveries.HAS_PENDING, {"at_id": webhook_id}
        yield f"call off {webhook_id}", webhook_deliveries.CANCEL[POSTGRES], {"at_id": webhook_id, "at_limit": LIMIT}
        half = {"at_id": webhook_id, "at_after": ROWS // 2, "at_limit": LIMIT}
        yield f"forget of {webhook_id}", webhook_deliveries.DELETE_BATCH_OF_WEBHOOK[POSTGRES], half
        yield f"log of {webhook_id}", webhook_deliveries.LIST_ATTEMPTS, {"at_webhook": webhook_id, "at_limit": LIMIT}
        since = {"at_id": webhook_id, "at_from": ROWS // 2, "at_after": 0, "at_until": ROWS}
        yield f"lost by {webhook_id}", webhook_deliveries.FIND_UNDELIVERED, since
        yield f"how much {webhook_id} lost", webhook_deliveries.COUNT_UNDELIVERED, since | {"at_limit": LIMIT}
    yield "revived", webhook_deliveries.REVIVE, {"at_no": 7, "at_due": 0}
    yield "forget before", webhook_deliveries.DELETE_OLDER_THAN, {"at_before": ROWS // 2, "at_limit": LIMIT}
    yield "an attempt", webhook_deliveries.GET_ATTEMPT, {"at_id": "whd_1"}
    numbers, ids = list(range(1, 33)), [f"whd_{number}" for number in range(1, 33)]
    ends = [["DELIVERED"] * 32, [1] * 32, [0] * 32, [0] * 32, numbers, [None] * 32]
    yield "finished deliveries", webhook_deliveries.FINISH_MANY.postgres_sql, ends
    logged = [[1] * 32, [200] * 32, [None] * 32, [True] * 32, [7] * 32, [None] * 32]
    yield "finished attempts", webhook_deliveries.FINISH_ATTEMPTS.postgres_sql, [*logged, ids]


REQUESTED = [*pages(), *unread(), *claims()]


@pytest.fixture(scope="module")
def filled() -> dict[str, dict[str, Any]]:
    """A database with many rows; and the plans of `claims` that were made when it had none, as they were carried out at the
    end."""

    async def fill() -> dict[str, dict[str, Any]]:
        database = SqlDatabase(await bare_postgres())
        await database.start()
        await database.stop()
        early, filling = await connect_with_plan_mode("force_generic_plan"), await asyncpg.connect(postgres.plain_url())
        for table in ("deliveries", "attempts"):  # a plan is forgotten when statistics are gathered
            await filling.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        names = {what: await prepare(early, statement) for what, statement, _ in claims()}
        for what, statement, params in claims():
            await explain(early, names[what], *values(statement, params))
        await filling.execute(FILL)
        plans = {what: await explain(early, names[what], *values(statement, params)) for what, statement, params in claims()}
        await filling.execute("ANALYZE")
        await early.close()
        await filling.close()
        return plans

    return asyncio.run(fill())


@pytest.fixture(params=["force_custom_plan", "auto"])
async def connection(filled: object, request: pytest.FixtureRequest) -> AsyncIterator[asyncpg.Connection[Any]]:
    connected = await connect_with_plan_mode(request.param)
    yield connected
    await connected.close()


@pytest.mark.parametrize(("statement", "params"), [one[1:] for one in REQUESTED], ids=[one[0] for one in REQUESTED])
async def test_it_reads_by_index_what_it_gives(connection: asyncpg.Connection[Any], statement: Any, params: Any) -> None:
    plan = await explain(connection, await prepare(connection, statement), *values(statement, params), before=6)
    assert not oversized_steps(plan, ROWS / 10), json.dumps(plan, indent=1)


@pytest.mark.parametrize("what", [one[0] for one in claims()])
def test_it_does_so_with_a_plan_from_when_the_tables_were_empty(filled: dict[str, dict[str, Any]], what: str) -> None:
    assert not oversized_steps(filled[what], ROWS / 10), json.dumps(filled[what], indent=1)
