"""Ingest publishes the readings of watched devices, and restores the engine at startup."""

from __future__ import annotations

from domain.ingest.restore import restore_engine
from domain.telemetry.engine.reference import ReferenceEngine
from support.telemetry_world import TelemetryWorld


async def test_each_reading_of_a_watched_device_is_published(world: TelemetryWorld) -> None:
    device, other = await world.device(), await world.device()
    world.engine.set_watched(device.device_no, True)
    await world.report(device, temperature=21.5, mode="eco")
    await world.report(other, temperature=1)
    published = [(e.device_id, e.payload["metric"], e.payload["value"], e.payload["valueText"]) for e in world.publisher.events]
    assert published == [(device.device_id, "temperature", 21.5, None), (device.device_id, "mode", None, "eco")]


async def test_the_engine_is_restored_from_checkpoints_later_rows_and_rule_states(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20, humidity=40)
    await world.rule(device)
    await world.report(device, temperature=31)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints(world.engine.checkpoint(10))
    await world.report(device, temperature=32)

    restored = ReferenceEngine()
    assert (await restore_engine(restored, world.uow)).replayed_rows == 1
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

    restored = ReferenceEngine()
    report = await restore_engine(restored, world.uow)
    assert report.unreadable_devices == {broken_row.device_no, broken_checkpoint.device_no}
    for device in (broken_row, intact):
        assert {r.metric: r.value for r in restored.latest(device.device_no)} == {"temperature": 20}
