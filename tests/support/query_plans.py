"""The plan by which PostgreSQL executed a statement (EXPLAIN ANALYZE, rolled back)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
from sqlalchemy.dialects import postgresql

from adapters.storage.sql.postgres.backend import PLANNER_SETTINGS
from support import postgres

DIALECT = postgresql.asyncpg.dialect()  # type: ignore[no-untyped-call]


async def connect_with_plan_mode(mode: str) -> asyncpg.Connection[Any]:
    """A connection like the service's. `mode` of the plans: `force_custom_plan` plans for the values of each call,
    `force_generic_plan` once for all values; `auto` takes the cheaper one from the sixth call on."""
    return await asyncpg.connect(postgres.plain_url(), server_settings={**PLANNER_SETTINGS, "plan_cache_mode": mode})


async def prepare(connection: asyncpg.Connection[Any], statement: Any) -> str:
    """Prepare the statement; returns its name on this connection."""
    sql = statement if isinstance(statement, str) else str(statement.compile(dialect=DIALECT))
    name = f"asked_{abs(hash(sql))}"
    if not await connection.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name = $1", name):
        await connection.execute(f"PREPARE {name} AS {sql}")
    return name


def values(statement: Any, given: Any) -> list[Any]:
    if isinstance(statement, str):
        return list(given)
    compiled = statement.compile(dialect=DIALECT)
    all_given = {**compiled.params, **given}
    return [all_given[name] for name in compiled.positiontup or []]


async def explain(connection: asyncpg.Connection[Any], name: str, *given: Any, before: int = 0) -> dict[str, Any]:
    """The plan of the last execution, after `before` executions."""
    listed = ", ".join(map(_literal, given))
    statement = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name}" + (f"({listed})" if given else "")
    for _ in range(before):
        await explain(connection, name, *given)
    change = connection.transaction()
    await change.start()
    try:
        return json.loads(await connection.fetchval(statement))[0]["Plan"]  # type: ignore[no-any-return]
    finally:
        await change.rollback()


def oversized_steps(plan: dict[str, Any], most: float) -> list[str]:
    """Steps that read, joined or sorted more rows than that."""
    found = []
    for node in _nodes(plan):
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if rows > most:
            found.append(f"{node['Node Type']} {node.get('Index Name', node.get('Relation Name', ''))}: {rows}")
    return found


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return "NULL" if set(value) == {None} else f"ARRAY[{', '.join(map(_literal, value))}]"
    return "NULL" if value is None else repr(value)
