"""An engine is restored from what is stored: at the start, and when a partition moves."""

from __future__ import annotations

from domain.ingest.restore import restore_engine, restore_partition
from domain.partitions.model import partition_of
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from support.telemetry_world import TelemetryWorld


async def test_the_engine_is_restored_from_checkpoints_later_rows_and_rule_states(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20, humidity=40)
    await world.rule(device)
    await world.report(device, temperature=31)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints(world.engine.checkpoint(10))
    await world.report(device, temperature=32)

    restored = ReferenceTelemetryEngine()
    assert (await restore_engine(restored, world.uow, world.clock.now_ms() + 1)).replayed_rows == 1
    assert {r.metric: r.value for r in restored.latest(device.device_no)} == {"temperature": 32, "humidity": 40}
    world.engine = restored
    await world.report(device, temperature=33)
    assert await world.commands_of(device) == ["OFF"]


async def test_a_damaged_row_or_checkpoint_does_not_affect_other_devices(world: TelemetryWorld) -> None:
    broken_row, broken_checkpoint, intact = [await world.device() for _ in range(3)]
    for device in (broken_row, broken_checkpoint, intact):
        await world.report(device, temperature=20)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints([(broken_checkpoint.device_no, world.clock.now_ms() - 1, b"\xff\xff")])
        await tx.readings.add_many([(broken_row.device_no, world.clock.now_ms() + 1, 7, b"\xff")])

    restored = ReferenceTelemetryEngine()
    report = await restore_engine(restored, world.uow, world.clock.now_ms() + 1)
    assert report.unreadable_devices == {broken_row.device_no, broken_checkpoint.device_no}
    for device in (broken_row, intact):
        assert {r.metric: r.value for r in restored.latest(device.device_no)} == {"temperature": 20}


async def test_a_partition_that_moves_to_another_engine_goes_on_there_and_nowhere_else(world: TelemetryWorld) -> None:
    devices = [await world.device() for _ in range(8)]
    for device in devices:
        await world.report(device, temperature=20)
        await world.rule(device, for_seconds=60)
    for device in devices:
        await world.report(device, temperature=31)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints(world.engine.checkpoint_partition(1, 2, 100))
    moved = [device for device in devices if partition_of(device.device_no, 2) == 1]
    assert 0 < len(moved) < len(devices)
    for device in moved:
        await world.report(device, temperature=32)

    taker = ReferenceTelemetryEngine()
    taker.set_watched(moved[0].device_no, True)
    report = await restore_partition(taker, world.uow, 1, 2, world.clock.now_ms())
    assert report.replayed_rows == len(moved)
    assert world.engine.drop_partition(1, 2) == len(moved)
    for device in devices:
        here, there = (taker, world.engine) if device in moved else (world.engine, taker)
        assert {each.metric: each.value for each in here.latest(device.device_no)} == {
            "temperature": 32 if device in moved else 31
        }
        assert there.latest(device.device_no) == []
    due_ms = world.clock.now_ms() + 60_000
    fired = [{firing.rule_no for firing in engine.tick(due_ms).rule_firings} for engine in (taker, world.engine)]
    assert (len(fired[0]), len(fired[1])) == (len(moved), len(devices) - len(moved))
    assert fired[0].isdisjoint(fired[1])
