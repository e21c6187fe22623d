"""A deleted device is gone at once, and what is stored of it follows in steps."""

from __future__ import annotations

import pytest

from domain.devices.erasure import BATCH_ROWS, TOMBSTONE_RETENTION_MS, DeviceErasureService
from domain.kernel.errors import NotFound, Unavailable
from domain.telemetry.ports import MessageKey
from support.device_world import DeviceWorld
from support.memory_storage.telemetry import MemoryReadingRepository


async def at_once() -> None:
    pass


async def test_a_deleted_device_is_gone_with_its_connection_and_its_readings_follow(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, at, 0, b"x") for at in range(BATCH_ROWS + 1)])
        await tx.rollups.upsert([(device.device_no, hour, b"") for hour in range(3)])
        await tx.due_rollups.mark([(device.device_no, 4)], 1)
    await world.devices.delete(world.session(), device.device_id)
    with pytest.raises(NotFound):
        await world.devices.get(world.session(), device.device_id)
    assert (await world.control.list_devices(world.session())).devices == []
    assert world.link.expelled == [device.device_id]
    assert world.deleted == [device.device_no]
    assert len(world.events_of_kind("device_deleted")) == 1
    await world.erasure.erase_pending(at_once)
    assert await left_of(world, device.device_no) == 0


async def test_each_batch_of_its_readings_begins_where_the_last_one_ended(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins: list[object] = []
    delete = MemoryReadingRepository.delete_next_batch

    async def recorded(self: MemoryReadingRepository, device_no: int, limit: int, after: MessageKey | None) -> object:
        begins.append(after)
        return await delete(self, device_no, limit, after)

    monkeypatch.setattr(MemoryReadingRepository, "delete_next_batch", recorded)
    device = await world.device()
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, at, 7, b"x") for at in range(2 * BATCH_ROWS)])
    await world.devices.delete(world.session(), device.device_id)
    await world.erasure.erase_pending(at_once)
    *batches, at_the_end = begins
    assert batches == [None, (BATCH_ROWS - 1, 7), (2 * BATCH_ROWS - 1, 7)]
    assert at_the_end is None  # also what was stored meanwhile with an earlier time


async def left_of(world: DeviceWorld, device_no: int) -> int:
    async with world.uow.read() as tx:
        readings = len(await tx.readings.list_between(device_no, 0, 10**15, 10))
        rollups = len(await tx.rollups.list_between(device_no, 0, 10**15, 10))
        values = len(await tx.readings.list_device_metrics(device_no)) + sum(
            row[0] == device_no for row in await tx.readings.list_checkpoints()
        )
        return readings + rollups + values + len(await tx.due_rollups.list_hours(device_no, 0, 10**15))


async def test_what_a_deleted_device_had_on_its_way_does_not_stay(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.delete(world.session(), device.device_id)
    again_ms = await world.erasure.erase_pending(at_once)
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, 5, 0, b"late")])
        await tx.readings.assign_metric_numbers(["temperature"])
        await tx.readings.upsert_device_metrics([(device.device_no, 1, None)])
        await tx.readings.upsert_checkpoints([(device.device_no, 5, b"late")])
        await tx.due_rollups.mark([(device.device_no, 0)], 1)
    assert again_ms == world.clock.now_ms() + TOMBSTONE_RETENTION_MS
    world.clock.forward(TOMBSTONE_RETENTION_MS)
    assert await world.erasure.erase_pending(at_once) is None
    assert await left_of(world, device.device_no) == 0
    assert world.deleted == [device.device_no, device.device_no]


async def test_a_tombstone_stays_until_the_other_store_has_deleted_the_readings_and_holds_no_other_up(world: DeviceWorld) -> None:
    first, second = await world.device(), await world.device()
    refusing, erased = {first.device_no}, []

    async def erase_elsewhere(device_no: int) -> None:
        if device_no in refusing:
            raise Unavailable("away")
        erased.append(device_no)

    erasure = DeviceErasureService(
        uow=world.uow, clock=world.clock, wake=lambda: None, on_deleted=lambda _: None, erase_elsewhere=erase_elsewhere
    )
    for device in (first, second):
        await world.devices.delete(world.session(), device.device_id)
        async with world.uow.write() as tx:
            await tx.readings.add_many([(device.device_no, 5, 0, b"late")])
    world.clock.forward(TOMBSTONE_RETENTION_MS)
    with pytest.raises(Unavailable):
        await erasure.erase_pending(at_once)
    assert [await left_of(world, device.device_no) for device in (first, second)] == [0, 0]
    async with world.uow.read() as tx:
        assert [number for number, _ in await tx.devices.list_tombstones()] == [first.device_no]
    refusing.clear()
    assert await erasure.erase_pending(at_once) is None
    assert erased == [second.device_no, first.device_no]


async def test_a_device_with_very_many_commands_is_gone_at_once_and_erased_by_the_worker(world: DeviceWorld) -> None:
    device = await world.device()

    async def slow(*_: object) -> bool:
        return False

    world.erasure.erase, erase = slow, world.erasure.erase  # type: ignore[method-assign]
    await world.devices.delete(world.session(), device.device_id)
    with pytest.raises(NotFound):
        await world.devices.get(world.session(), device.device_id)
    world.erasure.erase = erase  # type: ignore[method-assign]
    await world.erasure.erase_pending(at_once)
    async with world.uow.read() as tx:
        assert await tx.devices.find(device.device_id) is None


async def test_a_crash_while_deleting_is_taken_up_at_the_next_start(world: DeviceWorld) -> None:
    device = await world.device()

    async def crash(*_: object) -> bool:
        raise RuntimeError("power cut")

    world.erasure.erase, erase = crash, world.erasure.erase  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await world.devices.delete(world.session(), device.device_id)
    world.erasure.erase = erase  # type: ignore[method-assign]
    await world.erasure.erase_pending(at_once)
    assert world.deleted[0] == device.device_no
