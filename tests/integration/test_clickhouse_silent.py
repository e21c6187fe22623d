"""A ClickHouse that takes requests and never answers: a read ends, and few reads wait for it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.clickhouse import reading_store
from adapters.clickhouse.reading_store import MAX_READS, ClickHouseConnectionConfig, ClickHouseReadingStore
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId
from support.device import cancel_tasks
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S
from support.webhook_receiver import never_respond, webhook_receiver


@pytest.fixture
async def silent() -> AsyncIterator[ClickHouseReadingStore]:
    async with webhook_receiver(never_respond()) as server:
        store = ClickHouseReadingStore(ClickHouseConnectionConfig.parse(server.url), days=90)
        yield store
        await store.close()


async def read(store: ClickHouseReadingStore) -> None:
    await store.list_page((1, DeviceId("dev_1")), 0, 1_000, 10, None)


async def test_a_read_ends_although_the_table_is_not_made(
    silent: ClickHouseReadingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_store, "READ_TIMEOUT_S", 0.1)
    async with asyncio.timeout(OPERATION_TIMEOUT_S):
        with pytest.raises(Unavailable, match="does not answer"):
            await read(silent)


async def test_few_reads_wait_at_a_time(silent: ClickHouseReadingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others give their connection to the database back."""
    monkeypatch.setattr(reading_store, "READ_TIMEOUT_S", 3 * TIMEOUT_S)
    monkeypatch.setattr(reading_store, "READ_TURN_TIMEOUT_S", 0.05)
    waiting = [asyncio.create_task(read(silent)) for _ in range(MAX_READS)]
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(Unavailable, match="does not answer"):
            await asyncio.wait_for(read(silent), OPERATION_TIMEOUT_S)
    assert not any(task.done() for task in waiting)
    await cancel_tasks(*waiting)
