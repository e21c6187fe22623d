"""Ingest publishes the readings of watched devices, and restores the engine at startup."""

from __future__ import annotations

from domain.events.feed_model import reading_event_id
from domain.ingest.restore import restore_engine, restore_partition
from domain.kernel.ids import IdPrefix, has_id_format
from domain.partitions.model import partition_of
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
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


async def test_a_message_that_is_delivered_again_is_announced_once(world: TelemetryWorld) -> None:
    device = await world.device()
    world.engine.set_watched(device.device_no, True)
    payload = b'{"ts": %d, "m": {"temperature": 21.5}}' % world.clock.now_ms()
    for number in (1, 2, 2):
        messages = [(device.device_no, world.clock.now_ms() + number, payload)] * number
        await world.store(await world.ingest_all(messages))
    [event] = world.publisher.events
    assert event.event_id == reading_event_id(device.device_id, event.at_ms, "temperature", 21.5, None)
    assert has_id_format(IdPrefix.EVENT, event.event_id)
    assert world.publisher.to_feed == []


async def test_a_retry_after_a_commit_whose_answer_was_lost_still_reaches_the_feed(world: TelemetryWorld) -> None:
    device = await world.device()
    world.engine.set_watched(device.device_no, True)
    result = await world.ingest_all([(device.device_no, world.clock.now_ms(), b'{"temperature": 21.5}')])
    async with world.uow.write() as tx:
        await world.ingest.store(tx, result)
        tx.after_commit_calls.clear()  # the commit succeeds, and its caller does not learn of it
    await world.store(result)
    assert world.publisher.events == world.publisher.to_feed
    assert len(world.publisher.to_feed) == 1


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
