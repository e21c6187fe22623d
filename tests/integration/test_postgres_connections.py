"""Closed and dead connections are replaced before the next transaction uses them."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from adapters.storage.errors import SecondReadStatementError, TransactionClosedError
from adapters.storage.sql import SqlDatabase, tables
from adapters.storage.sql.postgres import backend, session
from adapters.storage.sql.postgres.leadership import PostgresCoordinationConnection
from adapters.storage.sql.statements import bulk_insert
from domain.kernel.clock import HOUR_MS
from domain.kernel.errors import Unavailable
from domain.telemetry.packing import pack_readings
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from domain.telemetry.rollups import RollupService
from support import empty_database, postgres, storage
from support.manual_clock import ManualClock
from support.silent_network import silent_network
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")


async def close_all() -> int:
    """Close every other connection to the database; returns their number."""
    connection = await asyncpg.connect(postgres.plain_url())
    try:
        others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        end = f"SELECT pg_terminate_backend(pid, {TIMEOUT_S * 1_000:.0f}) FROM pg_stat_activity WHERE {others}"
        return len(await connection.fetch(end))
    finally:
        await connection.close()


@pytest.mark.parametrize("rested_s", [0.0, backend.PING_AFTER_IDLE_S])
async def test_connections_that_the_server_has_closed_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rested_s: float
) -> None:
    monkeypatch.setattr(backend, "PING_AFTER_IDLE_S", rested_s)
    async with storage.open_storage("postgres", tmp_path, pool_size=3) as uow:

        async def look() -> None:
            async with uow.read() as tx:
                assert not await tx.accounts.has_any()

        for _ in range(3):
            await asyncio.gather(*(look() for _ in range(6)))
            assert await close_all() >= 1
            await asyncio.sleep(0.1)  # the event loop reads that the server has closed them
        await asyncio.gather(*(look() for _ in range(6)))
        async with uow.write() as tx:
            await tx.accounts.add(storage.an_account())


async def test_a_connection_is_pinged_only_after_it_was_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    database = SqlDatabase(await empty_database.empty_postgres(), pool_size=1)
    await database.start()
    try:
        requested: list[object] = []
        monkeypatch.setattr(database._backend._engine.dialect, "do_ping", lambda connection: requested.append(connection) or True)
        for _ in range(3):
            async with database.uow.read() as tx:
                await tx.accounts.has_any()
        assert requested == []
        monkeypatch.setattr(backend, "PING_AFTER_IDLE_S", 0.0)
        async with database.uow.read() as tx:
            await tx.accounts.has_any()
        assert len(requested) == 1
    finally:
        await database.stop()


async def test_a_transaction_behind_a_silent_network_does_not_keep_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "IDLE_TRANSACTION_MS", 300)
    url = await empty_database.empty_postgres()
    touch = text("UPDATE write_probes SET probe_id = probe_id")
    async with silent_network(url) as network:
        cut_off, other = SqlDatabase(network.url, transaction_timeout_s=3_600), SqlDatabase(url)
        await cut_off.start()
        await other.start()
        with pytest.raises(Unavailable):  # its ROLLBACK, which gets no answer, has a limit of its own
            async with asyncio.timeout(TIMEOUT_S), cut_off.unit_of_work().write() as tx:
                await tx.session.write(touch)
                network.silent = True
                async with other.unit_of_work().write() as ours:
                    await ours.session.write(touch)
                raise Unavailable("the transaction behind the silent network is over")
        await other.stop()


async def test_behind_a_silent_network_nothing_waits_for_the_limit_of_a_statement() -> None:
    touch = text("UPDATE write_probes SET probe_id = probe_id")
    async with silent_network(await empty_database.empty_postgres()) as network:
        database = SqlDatabase(network.url, pool_size=2, transaction_timeout_s=3_600)

        async def write() -> None:
            async with database.uow.write() as tx:
                await tx.session.write(touch)

        await database.start()
        listener = PostgresCoordinationConnection(
            network.url,
            on_notify=lambda: None,
            process_id=secrets.token_bytes(16),
            on_silence=database.abort_connections,
            connect_timeout_s=0.5,
        )
        await listener.open()
        await asyncio.gather(write(), write())
        listening = asyncio.create_task(listener.run_until_lost())
        async with asyncio.timeout(TIMEOUT_S):
            network.silent = True
            with pytest.raises(Unavailable):
                await write()
            with pytest.raises(Unavailable):
                await listening
            network.silent = False
            await asyncio.gather(write(), write())  # on new connections: the idle one was cut off too
        await database.stop()


async def test_a_read_of_one_statement_is_one_and_has_no_transaction_around_it(tmp_path: Path) -> None:
    async with storage.open_storage("postgres", tmp_path, pool_size=1) as uow:
        async with uow.read(one_statement=True) as tx:
            assert not await tx.accounts.has_any()
            with pytest.raises(SecondReadStatementError):
                await tx.accounts.has_any()
        async with uow.write() as tx:
            await tx.accounts.add(storage.an_account())
        async with uow.read(one_statement=True) as tx:
            assert await tx.accounts.has_any()
            raw = await tx.session._connection.get_raw_connection()
            assert not raw.driver_connection.is_in_transaction()


async def test_a_transaction_that_is_cancelled_gives_a_usable_connection_back(tmp_path: Path) -> None:
    async with storage.open_storage("postgres", tmp_path, pool_size=1) as uow:

        async def sleep_in_transaction() -> None:
            async with uow.write() as tx:
                await tx.accounts.add(storage.an_account())
                await tx.session.read(text("SELECT pg_sleep(60)"))

        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sleep_in_transaction(), 0.2)
            async with uow.read() as tx:
                assert not await tx.accounts.has_any()


async def test_writes_to_several_tables_are_one_statement(tmp_path: Path) -> None:
    numbers = bulk_insert(tables.metric_names, ("metric_no", "name"))
    probes = bulk_insert(tables.write_probes, ("probe_id", "padding"))
    async with storage.open_storage("postgres", tmp_path, pool_size=1) as uow:
        async with uow.write() as tx:
            await tx.session.bulk_write_all([(numbers, [(1, "a"), (2, "b")]), (probes, [(7, "x")]), (numbers, [])])
            await tx.session.bulk_write_all([(numbers, [])])
        async with uow.read() as tx:
            found = await tx.session.read(text("SELECT metric_no, name FROM metric_names ORDER BY metric_no"))
            assert [tuple(row) for row in found] == [(1, "a"), (2, "b")]
            found = await tx.session.read(text("SELECT padding FROM write_probes WHERE probe_id = 7"))
            assert [tuple(row) for row in found] == [("x",)]


async def test_a_transaction_that_goes_on_after_an_error_is_not_reported_as_saved(tmp_path: Path) -> None:
    callbacks: list[str] = []
    async with storage.open_storage("postgres", tmp_path, pool_size=1) as uow:
        with pytest.raises(Unavailable):
            async with uow.write() as tx:
                tx.after_commit(lambda: callbacks.append("called"))
                await tx.accounts.add(storage.an_account())
                with pytest.raises(Unavailable):
                    await tx.session.read(text("SELECT 1 FROM no_such_table"))
        async with uow.read() as tx:
            assert not await tx.accounts.has_any()
    assert callbacks == []


async def test_nothing_runs_after_a_transaction_that_could_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with storage.open_storage("postgres", tmp_path, pool_size=1) as uow:
        with pytest.raises(TransactionClosedError):
            async with uow.write() as tx:
                monkeypatch.setitem(session._BEGIN, True, "BEGIN NONSENSE")
                with pytest.raises(Unavailable):
                    await tx.accounts.add(storage.an_account())
                await tx.accounts.add(storage.an_account())
        monkeypatch.undo()
        async with uow.read() as tx:
            assert not await tx.accounts.has_any()


async def test_the_readings_of_an_hour_are_read_without_a_transaction_around_each_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of roll-ups has a page for each hour of a device."""
    async with storage.open_storage("postgres", tmp_path, pool_size=1) as uow:
        hour = storage.NOW // HOUR_MS - 5
        rollups = RollupService(uow=uow, clock=ManualClock(storage.NOW), engine=ReferenceTelemetryEngine())
        async with uow.write() as tx:
            await tx.readings.add_many([(1, hour * HOUR_MS + 7, 1, pack_readings([(1, 20.5)]))])
            await tx.due_rollups.mark([(1, hour)], storage.NOW)
        monkeypatch.setitem(session._BEGIN, False, "BEGIN NONSENSE")
        assert await rollups.run_once() == 1
        monkeypatch.undo()
        async with uow.read() as tx:
            assert [at for at, _ in await tx.rollups.list_between(1, hour, hour + 1, 10)] == [hour]
