"""Alembic's entry. The service passes a connection; on the command line Alembic connects to the configured URL."""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine

from adapters.storage.sql.tables import metadata


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def migrate_url(url: str) -> None:
    engine = create_async_engine(url, poolclass=pool.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


provided_connection = context.config.attributes.get("connection")
if provided_connection is not None:
    migrate(provided_connection)
else:
    asyncio.run(migrate_url(context.config.get_main_option("sqlalchemy.url") or ""))
