"""What a database says of its own schema, in a form in which two databases can be compared."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

_SQLITE = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'"
_POSTGRES = (
    "SELECT table_name, concat_ws(' ', column_name, data_type, is_nullable, column_default) FROM information_schema.columns "
    "WHERE table_schema = 'public'",
    "SELECT CAST(conrelid AS regclass)::text, conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = 'public'::regnamespace",
    "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT relname, relkind::text || ' ' || coalesce(pg_get_partkeydef(oid), '') || coalesce(reloptions::text, '') FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace",
)


@asynccontextmanager
async def engine_of(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=NullPool)
    try:
        yield engine
    finally:
        await engine.dispose()


async def definitions_of(url: str) -> dict[str, list[str]]:
    """The parts of each definition, in an order of their own: columns that a step adds stand behind the others."""
    async with engine_of(url) as engine, engine.connect() as connection:
        return await connection.run_sync(_definitions)


def _definitions(connection: Connection) -> dict[str, list[str]]:
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text(_SQLITE)).all()
        return {name: sorted(re.split(r",? +", re.sub(r'[\s"()]+', " ", sql).strip())) for name, sql in rows}
    found: dict[str, list[str]] = {}
    for query in _POSTGRES:
        for name, definition in connection.exec_driver_sql(query):
            found.setdefault(name, []).append(definition)
    return {name: sorted(parts) for name, parts in found.items()}
