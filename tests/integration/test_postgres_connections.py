"""Closed and dead connections are replaced before the next transaction uses them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.postgres import pool
from domain.kernel.errors import Unavailable
from support import postgres, storage
from support.silent_network import silent_network

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")


async def close_all() -> int:
    """Close every other connection to the database; returns their number."""
    connection = await asyncpg.connect(postgres.plain_url())
    try:
        others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        return len(await connection.fetch(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
    finally:
        await connection.close()


@pytest.mark.parametrize("rested_s", [0.0, pool.PING_AFTER_IDLE_S])
async def test_connections_that_the_server_has_closed_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rested_s: float
) -> None:
    monkeypatch.setattr(pool, "PING_AFTER_IDLE_S", rested_s)
    async with storage.open_storage("postgres", tmp_path, pool_size=3) as uow:

        async def look() -> None:
            async with uow.read() as tx:
                assert not await tx.accounts.has_any()

        for _ in range(3):
            await asyncio.gather(*(look() for _ in range(6)))
            assert await close_all() >= 1
            await asyncio.sleep(0.1)  # the word of the server arrives
        await asyncio.gather(*(look() for _ in range(6)))
        async with uow.write() as tx:
            await tx.accounts.add(storage.an_account())


async def test_a_connection_is_pinged_only_after_it_was_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    database = SqlDatabase(await storage.empty_postgres(), pool_size=1)
    await database.start()
    try:
        requested: list[object] = []
        monkeypatch.setattr(database._backend._engine.dialect, "do_ping", lambda connection: requested.append(connection) or True)
        for _ in range(3):
            async with database.uow.read() as tx:
                await tx.accounts.has_any()
        assert requested == []
        monkeypatch.setattr(pool, "PING_AFTER_IDLE_S", 0.0)
        async with database.uow.read() as tx:
            await tx.accounts.has_any()
        assert len(requested) == 1
    finally:
        await database.stop()


async def test_a_transaction_behind_a_silent_network_does_not_keep_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_TRANSACTION_MS", 300)
    url = await storage.empty_postgres()
    touch = text("UPDATE write_probes SET probe_id = probe_id")
    async with silent_network(url) as network:
        cut_off, other = SqlDatabase(network.url, transaction_timeout_s=1.0), SqlDatabase(url)
        await cut_off.start()
        await other.start()
        with pytest.raises(Unavailable):
            async with cut_off.unit_of_work().write() as tx:
                await tx.session.write(touch)
                network.silent = True
                async with other.unit_of_work().write() as ours:
                    await ours.session.write(touch)
                raise Unavailable("the transaction behind the silent network is over")
        await other.stop()
