"""A batch that is locked with SKIP LOCKED holds its limit on PostgreSQL whatever plan the server chooses: in a nested loop it would
run the query of `IN (… LIMIT … SKIP LOCKED)` again for each row, and so change all of them in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from adapters.storage.sql.repositories import webhook_deliveries
from adapters.storage.sql.session import POSTGRES
from support import postgres
from support.empty_database import empty_postgres
from support.query_plans import DIALECT, values

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

WEBHOOK, PENDING, LIMIT = "whk_1", 40, 3
FILL = f"""
INSERT INTO accounts (account_id, name, plan, created_ms) VALUES ('acc_1', 'Acme', 'free', 0);
INSERT INTO deliveries (webhook_id, account_id, device_id, event_id, event_type, data, state, attempts, due_ms, ready_ms, created_ms)
  SELECT '{WEBHOOK}', 'acc_1', 'dev_1', 'evt_' || i, 'relay_changed', 'x', 'PENDING', 0, i, i, i FROM generate_series(1, {PENDING}) AS i
"""
NESTED_LOOPS_ONLY = "; ".join(f"SET enable_{way} = off" for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material"))
OF_WEBHOOK: dict[str, Any] = {"at_id": WEBHOOK, "at_limit": LIMIT}
CLAIM: dict[str, Any] = {"at_until": 999, "at_now": 100, "at_limit": LIMIT}
STATEMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "claim": (webhook_deliveries.CLAIM[POSTGRES], CLAIM),
    "claim except": (webhook_deliveries.CLAIM_EXCEPT[POSTGRES], {**CLAIM, "at_listed": "[]"}),
    "cancel": (webhook_deliveries.CANCEL[POSTGRES], OF_WEBHOOK),
    "delete": (webhook_deliveries.DELETE_BATCH_OF_WEBHOOK[POSTGRES], {**OF_WEBHOOK, "at_after": 0}),
}


@pytest.fixture
async def connection() -> AsyncIterator[asyncpg.Connection[Any]]:
    await empty_postgres()
    connection = await asyncpg.connect(postgres.plain_url())
    await connection.execute(FILL)
    yield connection
    await connection.close()


@pytest.mark.parametrize("planner", ["as it chooses", "nested loops"])
@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_batch_holds_its_limit(connection: asyncpg.Connection[Any], name: str, planner: str) -> None:
    if planner == "nested loops":
        await connection.execute(NESTED_LOOPS_ONLY)
    statement, given = STATEMENTS[name]
    changed = await connection.fetch(str(statement.compile(dialect=DIALECT)), *values(statement, given))
    assert len(changed) == LIMIT
