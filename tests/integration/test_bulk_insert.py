"""Many rows by one statement come out as they went in, on either database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapters.storage.sql.session import SqlSession, UniqueViolationError
from adapters.storage.sql.statements import bulk_insert, bulk_update
from adapters.storage.sql.tables import devices, event_counts, events
from domain.events.cursors import EventLogCursor
from support import storage

KEPT = (
    *("event_id", "account_id", "device_id", "kind", "description", "at_ms", "source", "address", "payload", "public"),
    *("writer", "sequence", "hash"),
)
EVENTS = bulk_insert(events, KEPT, json=("payload",))
COUNTS = bulk_insert(event_counts, ("account_id", "kind", "device_id", "writer", "total"), adding="total")
NAMES = bulk_update(devices, "device_id", ("name", "relay", "last_seen_ms"))
PAYLOADS: list[Any] = [
    {"quoted": "\"'\\ , ] }", "wide": "Größe 温度 🌡", "none": None, "yes": True, "number": 0.1, "large": 2**62},
    None,
    [1, [2, {"deep": []}]],
    "text",
]


@pytest.fixture(params=[kind for kind in storage.STORAGES if kind != "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _row(world: storage.StoredAccount, number: int, payload: Any) -> tuple[Any, ...]:
    text = f"number {number}: \"'\\ , ] 温度"
    device = world.device.device_id if number % 2 else None
    account = world.account.account_id
    return (
        storage.new_id("evt"),
        account,
        device,
        "relay_changed",
        text,
        2**53 + number,
        "test",
        "",
        payload,
        number % 2 == 0,
        0,
        number,
        "",
    )


async def test_rows_keep_their_order_their_kinds_and_every_character(kind: str, tmp_path: Path) -> None:
    async with storage.open_storage(kind, tmp_path) as uow:
        world = await storage.populate(uow)
        rows = [_row(world, number, payload) for number, payload in enumerate(PAYLOADS)]
        async with uow.write() as tx:
            before = await tx.events.end()
            await tx.session.bulk_write(EVENTS, rows)
        async with uow.read() as tx:
            found = await tx.events.list_after(before, 10)
            shown = await tx.events.list_public_after(world.account.account_id, before, 10)
    as_given = [(row[0], row[2], row[4], row[5], row[8]) for row in rows]
    assert [(one.event_id, one.device_id, one.description, one.at_ms, one.payload) for one in found] == as_given
    assert [one.event_id for one in shown] == [row[0] for row in rows if row[9]]


async def test_a_counter_that_is_there_is_added_to(kind: str, tmp_path: Path) -> None:
    async with storage.open_storage(kind, tmp_path) as uow:
        world = await storage.populate(uow)
        account, device = world.account.account_id, world.device.device_id
        for _ in range(2):
            async with uow.write() as tx:
                await tx.session.bulk_write(
                    COUNTS, [(account, "relay_changed", device, 0, 3), (account, "relay_changed", "", 0, 1)]
                )
        async with uow.read() as tx:
            assert await tx.events.count(account, kind="relay_changed", device_id=device) == 6
            assert await tx.events.count(account, kind="relay_changed") == 8


async def test_each_row_is_changed_to_its_own_values(kind: str, tmp_path: Path) -> None:
    async with storage.open_storage(kind, tmp_path) as uow:
        world = await storage.populate(uow)
        async with uow.write() as tx:
            await tx.session.bulk_write(NAMES, [(world.device.device_id, 'Pump "2"', True, 7), ("dev_none", "none", None, None)])
        async with uow.read() as tx:
            device = await tx.devices.find(world.device.device_id)
    assert device is not None
    assert (device.name, device.relay, device.last_seen_ms) == ('Pump "2"', True, 7)


async def test_one_row_too_many_takes_all_of_the_transaction_back(kind: str, tmp_path: Path) -> None:
    async with storage.open_storage(kind, tmp_path) as uow:
        world = await storage.populate(uow)
        row = _row(world, 1, {})
        with pytest.raises(UniqueViolationError):
            async with uow.write() as tx:
                session: SqlSession = tx.session
                await session.bulk_write(EVENTS, [_row(world, 2, {}), row, row])
        async with uow.read() as tx:
            assert await tx.events.oldest_position() == 0


@pytest.mark.parametrize("fault", ["the database", "the caller"])
async def test_rows_that_are_being_written_when_it_fails_leave_nothing_behind(kind: str, tmp_path: Path, fault: str) -> None:
    """So many that SQLite's thread begins with them at once."""
    async with storage.open_storage(kind, tmp_path) as uow:
        world = await storage.populate(uow)
        rows = [_row(world, number, {}) for number in range(500)]
        with pytest.raises(UniqueViolationError if fault == "the database" else KeyError):
            async with uow.write() as tx:
                await tx.session.bulk_write(EVENTS, rows)
                if fault == "the caller":
                    raise KeyError
                await tx.session.bulk_write(EVENTS, rows)
        async with uow.write() as tx:
            assert await tx.events.oldest_position() == 0
            await tx.session.bulk_write(EVENTS, rows)
        async with uow.read() as tx:
            assert [one.event_id for one in await tx.events.list_after(EventLogCursor(), 1000)] == [row[0] for row in rows]
