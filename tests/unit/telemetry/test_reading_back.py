"""History, downsampling, latest values and exports give back what was stored, to those who may see it."""

from __future__ import annotations

import pytest

from domain.ingest.restore import restore_engine
from domain.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from domain.kernel.ids import DeviceId
from domain.telemetry.queries import latest_and_history
from domain.telemetry.queries.paging import TimeRange
from support.telemetry_world import ReferenceEngine, TelemetryWorld

ALL = TimeRange(0, 2**50)


async def test_history_is_newest_first_and_limited(world: TelemetryWorld) -> None:
    device = await world.device()
    for value in range(5):
        await world.report(device, temperature=value, humidity=50)
    found = await world.telemetry.history(world.session(), device.device_id, ALL, metric="temperature", limit=3)
    assert [reading.value for reading in found] == [4, 3, 2]
    both = await world.telemetry.history(world.session(), device.device_id, ALL, metric=None, limit=1000)
    assert len(both) == 10


async def test_paging_over_many_messages_of_one_instant_loses_and_doubles_none(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_and_history, "PAGE_MESSAGES", 4)
    monkeypatch.setattr(latest_and_history, "EXPORT_PAGE_MESSAGES", 4)
    device = await world.device()
    begin = world.clock.now_ms()
    for value in range(10):
        await world.report(device, temperature=value)
        if value % 3:
            world.clock.forward(-1_000)
    found = await world.telemetry.history(world.session(), device.device_id, ALL, metric="temperature", limit=1000)
    assert sorted(reading.value or 0 for reading in found) == list(range(10))
    exported = [
        r.value async for page in world.telemetry.export(world.session(), device.device_id, ALL, metric=None) for r in page
    ]
    assert sorted(value or 0 for value in exported) == list(range(10))
    assert begin <= found[-1].at_ms


async def test_text_and_booleans_keep_their_words(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, mode="eco", door=True, level=2)
    latest = await world.telemetry.latest(world.session(), device.device_id)
    assert [(r.metric, r.value, r.text) for r in latest.readings] == [
        ("door", 1.0, "true"),
        ("level", 2.0, None),
        ("mode", None, "eco"),
    ]
    history = await world.telemetry.history(world.session(), device.device_id, ALL, metric=None, limit=10)
    assert {(r.metric, r.value, r.text) for r in history} == {("door", 1.0, "true"), ("level", 2.0, None), ("mode", None, "eco")}


async def test_downsampling_gives_min_max_mean_and_count(world: TelemetryWorld) -> None:
    device = await world.device()
    begin = world.clock.now_ms()
    for value in (10, 20, 30):
        await world.report(device, temperature=value)
    span = TimeRange(begin, begin + 60_000)
    asked = {"metric": "temperature", "step_ms": 60_000, "limit": 100}
    [bucket] = await world.downsampling.query_buckets(world.session(), device.device_id, span, **asked)
    assert (bucket.low, bucket.high, bucket.mean, bucket.count, bucket.total, bucket.last) == (10, 30, 20, 3, 60, 30)
    with pytest.raises(ValidationFailed):
        await world.downsampling.query_buckets(
            world.session(), device.device_id, TimeRange(1, begin), metric=None, step_ms=1_000, limit=100
        )


async def test_a_key_reads_only_what_a_grant_covers_and_other_accounts_see_nothing(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=1)
    granted = await world.key((device.device_id, ["ON"]))
    assert (await world.telemetry.latest(granted, device.device_id)).readings
    with pytest.raises(PermissionDenied):
        await world.telemetry.latest(await world.key(), device.device_id)
    with pytest.raises(NotFound):
        await world.telemetry.latest(world.session(), DeviceId("dev_99999999999999999999"))


async def test_watched_devices_are_announced_reading_by_reading(world: TelemetryWorld) -> None:
    device, other = await world.device(), await world.device()
    world.engine.set_watched(device.device_no, True)
    await world.report(device, temperature=21.5, mode="eco")
    await world.report(other, temperature=1)
    told = [(e.device_id, e.payload["metric"], e.payload["value"], e.payload["valueText"]) for e in world.announcer.events]
    assert told == [(device.device_id, "temperature", 21.5, None), (device.device_id, "mode", None, "eco")]


async def test_after_a_restart_the_engine_knows_checkpoint_rows_and_rule_states(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20, humidity=40)
    await world.rule(device)
    await world.report(device, temperature=31)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints(world.engine.checkpoint(10))
    await world.report(device, temperature=32)

    fresh = ReferenceEngine()
    assert (await restore_engine(fresh, world.uow)).replayed_rows == 1
    assert {r.metric: r.value for r in fresh.latest(device.device_no)} == {"temperature": 32, "humidity": 40}
    world.engine = fresh
    await world.report(device, temperature=33)
    assert await world.commands_of(device) == ["OFF"]


async def test_a_spoiled_row_or_checkpoint_keeps_no_other_device_from_its_values(world: TelemetryWorld) -> None:
    broken, halved, sound = [await world.device() for _ in range(3)]
    for device in (broken, halved, sound):
        await world.report(device, temperature=20)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints([(halved.device_no, world.clock.now_ms() - 1, b"\xff\xff")])
        await tx.readings.add_many([(broken.device_no, world.clock.now_ms() + 1, 7, b"\xff")])

    fresh = ReferenceEngine()
    done = await restore_engine(fresh, world.uow)
    assert done.unreadable_devices == {broken.device_no, halved.device_no}
    for device in (broken, sound):
        assert {r.metric: r.value for r in fresh.latest(device.device_no)} == {"temperature": 20}
