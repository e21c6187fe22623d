"""Readings, metrics and checkpoints."""

from __future__ import annotations

import pytest

from domain.devices.model import Device
from support.storage import NOW, StoredAccount, a_device


async def test_a_duplicate_reading_is_stored_once(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.readings.add_many([(1, NOW, 7, b"a"), (1, NOW, 8, b"b"), (1, NOW, 7, b"a")])
        await tx.readings.add_many([(1, NOW, 7, b"a"), (1, NOW + 1, 4_294_967_295, b"c")])
        await tx.readings.add_many([])
        assert list(await tx.readings.list_between(1, 0, NOW + 9, 9)) == [(NOW + 1, b"c"), (NOW, b"b"), (NOW, b"a")]


async def test_readings_of_a_failed_transaction_are_not_stored(world: StoredAccount) -> None:
    async def fail() -> None:
        async with world.uow.write() as tx:
            await tx.readings.add_many([(1, NOW, 7, b"a")])
            raise ValueError

    with pytest.raises(ValueError):
        await fail()
    async with world.uow.read() as tx:
        assert list(await tx.readings.list_between(1, 0, NOW + 9, 9)) == []


async def test_a_range_includes_its_start_and_excludes_its_end(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.readings.add_many([(number, at, 1, b"%d" % at) for number in (1, 2) for at in range(5)])
        assert list(await tx.readings.list_between(1, 1, 4, 9)) == [(3, b"3"), (2, b"2"), (1, b"1")]
        assert list(await tx.readings.list_between(1, 1, 4, 2, newest_first=False)) == [(1, b"1"), (2, b"2")]
        assert list(await tx.readings.list_between(3, 0, 9, 9)) == []


async def test_metrics_have_names_and_units(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert sorted(await tx.readings.assign_metric_numbers(["temperature", "humidity"])) == [
            (1, "temperature"),
            (2, "humidity"),
        ]
        assert sorted(await tx.readings.assign_metric_numbers(["mode", "humidity", "mode"])) == [(2, "humidity"), (3, "mode")]
        assert list(await tx.readings.assign_metric_numbers([])) == []
        assert list(await tx.readings.list_metric_names()) == [(1, "temperature"), (2, "humidity"), (3, "mode")]
        await tx.readings.upsert_device_metrics([(5, 1, "celsius"), (5, 2, None), (6, 3, None)])
        await tx.readings.upsert_device_metrics([(5, 1, "kelvin")])
        assert list(await tx.readings.list_device_metrics(5)) == [(2, "humidity", None), (1, "temperature", "kelvin")]
        assert list(await tx.readings.list_device_metrics(6)) == [(3, "mode", None)]
        assert dict(await tx.readings.list_metrics_of_devices([5, 6, 7])) == {
            (5, 1): ("temperature", "kelvin"),
            (5, 2): ("humidity", None),
            (6, 3): ("mode", None),
        }
        assert dict(await tx.readings.list_metrics_of_devices([])) == {}
        await tx.readings.declare_device_metrics(5, [1, 3])
        assert list(await tx.readings.list_device_metrics(5)) == [
            (2, "humidity", None),
            (3, "mode", None),
            (1, "temperature", "kelvin"),
        ]
        assert set(await tx.readings.list_reported_metrics(5)) == {"humidity", "temperature"}
        await tx.readings.upsert_device_metrics([(5, 3, "text")])
        assert set(await tx.readings.list_reported_metrics(5)) == {"humidity", "mode", "temperature"}


async def test_a_checkpoint_replaces_the_one_before(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints([(2, NOW, b"b"), (1, NOW, b"a")])
        await tx.readings.upsert_checkpoints([(2, NOW + 1, b"c")])
        await tx.readings.upsert_checkpoints([])
        assert list(await tx.readings.list_checkpoints()) == [(1, NOW, b"a"), (2, NOW + 1, b"c")]
        assert await tx.readings.find_checkpoint(2) == (NOW + 1, b"c")
        assert await tx.readings.find_checkpoint(3) is None


async def test_rows_newer_than_the_checkpoint_come_in_pages(world: StoredAccount) -> None:
    rows = [(device, at, digest, b"x") for device in (1, 2, 4) for at in (10, 11, 12) for digest in (1, 2)]
    expected = [row for row in rows if row[0] != 2 or row[1] > 11]
    async with world.uow.write() as tx:
        await tx.readings.add_many(rows[::-1])
        await tx.readings.upsert_checkpoints([(2, 11, b""), (3, 5, b"")])
        for size in (1, 4, 100):
            found, after = [], None
            while page := await tx.readings.list_newer_than_checkpoint(size, after):
                assert len(page) <= size
                found += page
                after = page[-1][:3]
            assert found == expected


async def test_readings_of_a_device_are_deleted_in_batches(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device, at, 1, b"x") for device in (1, 2) for at in range(5)])
        assert [await tx.readings.delete_batch(1, 3) for _ in range(3)] == [3, 2, 0]
        assert len(await tx.readings.list_between(2, 0, 9, 9)) == 5


async def test_each_batch_of_readings_to_delete_begins_where_the_last_one_ended(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device, at, digest, b"x") for device in (1, 2) for at in (1, 2, 3) for digest in (-7, 7)])
        first, after = await tx.readings.delete_next_batch(1, 3, None)
        assert (first, after) == (3, (2, -7))
        await tx.readings.add_many([(1, 1, 5, b"late"), (1, 2, -7, b"late")])
        second, after = await tx.readings.delete_next_batch(1, 3, after)
        assert (second, after) == (3, (3, 7))
        assert await tx.readings.delete_next_batch(1, 3, after) == (0, (3, 7))
        assert [at for at, _ in await tx.readings.list_between(1, 0, 9, 9)] == [2, 1]
        assert await tx.readings.delete_batch(1, 9) == 2
        assert len(await tx.readings.list_between(2, 0, 9, 9)) == 6


async def test_old_readings_are_found_by_device_and_deleted_in_batches(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device, at, 1, b"x") for device in (1, 7, 9) for at in range(5)])
        await tx.readings.add_many([(8, 4, 1, b"new")])
        assert [list(await tx.readings.list_devices_with_rows_before(2, first, 2)) for first in (0, 8, 10)] == [[1, 7], [9], []]
        for device in (1, 7, 9):
            assert [await tx.readings.delete_batch(device, 1, 2) for _ in range(3)] == [1, 1, 0]
            assert [at for at, _ in await tx.readings.list_between(device, 0, 9, 9)] == [4, 3, 2]
        assert list(await tx.readings.list_devices_with_rows_before(2, 0, 9)) == []


async def test_pages_continue_after_a_key_with_many_messages_of_one_instant(world: StoredAccount) -> None:
    rows = [(at, digest, b"x") for at in (1, 2, 3) for digest in (-(2**31), -1, 0, 2**31 - 1)]
    async with world.uow.write() as tx:
        await tx.readings.add_many([(5, *row) for row in rows])
        await tx.readings.add_many([(4, 2, 0, b"y"), (6, 2, 0, b"z")])
        for newest_first in (True, False):
            expected = [row for row in rows if row[0] < 3]
            found: list[tuple[int, int, bytes]] = []
            after = None
            while some := await tx.readings.list_page(5, 1, 3, 3, after, newest_first=newest_first):
                found += some
                after = some[-1][:2]
            assert found == (expected[::-1] if newest_first else expected)


async def test_readings_of_a_deleted_device_are_not_replayed(world: StoredAccount) -> None:
    kept = await _another(world)
    async with world.uow.write() as tx:
        await tx.readings.add_many([(world.device.device_no, NOW, 1, b"gone"), (kept.device_no, NOW, 1, b"kept")])
        await tx.devices.delete(world.device.device_id, NOW)
        assert [tuple(row) for row in await tx.readings.list_newer_than_checkpoint(9, None)] == [
            (kept.device_no, NOW, 1, b"kept")
        ]


async def _another(world: StoredAccount) -> Device:
    async with world.uow.write() as tx:
        device: Device = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
    return device


async def test_keys_that_are_stored_are_found(world: StoredAccount) -> None:
    no = world.device.device_no
    async with world.uow.write() as tx:
        await tx.readings.add_many([(no, NOW, -5, b"\x00"), (no, NOW + 1, 7, b"\x00")])
    async with world.uow.write() as tx:
        assert await tx.readings.list_existing([]) == set()
        asked = [(no, NOW, -5), (no, NOW, 5), (no, NOW + 1, 7), (no + 1, NOW, -5)]
        assert await tx.readings.list_existing(asked) == {(no, NOW, -5), (no, NOW + 1, 7)}


async def test_messages_are_deleted_by_their_keys_and_no_others(world: StoredAccount) -> None:
    keys = [(NOW - 1, 5), (NOW, -3), (NOW, 3), (NOW + 1, 3), (NOW + 9, 3)]
    async with world.uow.write() as tx:
        await tx.readings.add_many([(number, *key, b"x") for number in (1, 2) for key in keys])
        await tx.readings.delete_messages(1, [(NOW - 5, 3), *keys[:2], (NOW, 9), keys[3]])
        await tx.readings.delete_messages(1, [])
        await tx.readings.delete_messages(3, keys)
        left = [[row[:2] for row in await tx.readings.list_page(number, 0, NOW + 99, 9, None)] for number in (1, 2)]
    assert left == [[keys[4], keys[2]], keys[::-1]]
