"""Latest values, history, exports and time buckets return what was stored, to callers that may read it."""

from __future__ import annotations

import pytest

from domain.events.service import EventService
from domain.kernel.errors import NotFound, PermissionDenied
from domain.kernel.ids import DeviceId
from domain.telemetry import history as latest_and_history
from domain.telemetry.history import ReadingsAsEventsService
from domain.telemetry.model import HistoryTimeRange
from support.telemetry_world import TelemetryWorld

ALL = HistoryTimeRange(0, 2**50)


async def test_history_is_newest_first_and_limited(world: TelemetryWorld) -> None:
    device = await world.device()
    for value in range(5):
        await world.report(device, temperature=value, humidity=50)
    found, _ = await world.telemetry.history(world.session(), device.device_id, ALL, metric="temperature", limit=3)
    assert [reading.value for reading in found] == [4, 3, 2]
    both, _ = await world.telemetry.history(world.session(), device.device_id, ALL, metric=None, limit=1000)
    assert len(both) == 10


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("temperature,humidity", {"temperature", "humidity"}),
        ("temperature, unknown", {"temperature"}),
        ("unknown,other", set()),
        ("wind,gust", {"wind,gust"}),
    ],
)
async def test_several_metrics_are_asked_for_at_once(world: TelemetryWorld, asked: str, given: set[str]) -> None:
    device, session = await world.device(), world.session()
    await world.report(device, m={"temperature": 1, "humidity": 2, "pressure": 3, "wind": 4, "gust": 5, "wind,gust": 6})
    found, _ = await world.telemetry.history(session, device.device_id, ALL, metric=asked, limit=10)
    assert {reading.metric for reading in found} == given
    exported = [r.metric async for page in world.telemetry.export(session, device.device_id, ALL, metric=asked) for r in page]
    assert set(exported) == given
    span = HistoryTimeRange(world.clock.now_ms() - 60_000, world.clock.now_ms() + 60_000)
    for step_ms in (60_000, 3_600_000):
        buckets, _ = await world.downsampling.query_buckets(
            session, device.device_id, span, metric=asked, step_ms=step_ms, limit=10
        )
        assert {bucket.metric for bucket in buckets} == given


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_a_walk_from_the_oldest_reading_on_reads_what_a_walk_back_reads(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(latest_and_history, "PAGE_MESSAGES", 2)
    device = await world.device()
    for value in range(6):
        await world.report(device, temperature=value, humidity=value, pressure=value)
        if value % 2:
            world.clock.forward(-1_000)
    walks = []
    for newest_first in (True, False):
        seen, after = [], None
        while True:
            page, after = await world.telemetry.history(
                world.session(), device.device_id, ALL, metric=None, limit=limit, after=after, newest_first=newest_first
            )
            seen += page
            if after is None:
                break
        times = [reading.at_ms for reading in seen]
        assert times == sorted(times, reverse=newest_first)
        walks.append(sorted((reading.metric, reading.value) for reading in seen))
    assert walks[0] == walks[1]
    assert len(walks[0]) == 18


async def test_an_instance_that_follows_has_the_same_latest_values(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric is old, one is only in the checkpoint, one came late, one changed its unit, one appeared after the checkpoint."""
    monkeypatch.setattr(latest_and_history, "PAGE_MESSAGES", 100)
    device, session = await world.device(), world.session()

    async def require_equal() -> None:
        _, here = await world.telemetry.latest(session, device.device_id)
        assert here
        assert (await world.follower.latest(session, device.device_id))[1] == here

    await world.report(device, m={"serial": "A7", "temperature": 20}, u={"temperature": "celsius"})
    for value in range(300):
        await world.report(device, humidity=value)
    await require_equal()
    started_ms = world.clock.now_ms()
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints(world.engine.checkpoint(10))
        deleted = await tx.readings.delete_batch(device.device_no, 301)
    assert deleted == 301
    await require_equal()
    await world.report(device, m={"temperature": 300, "pressure": 1}, u={"temperature": "kelvin"})
    await world.report(device, humidity=5)
    await world.report(device, ts=started_ms - 1, m={"humidity": 6, "depth": 7})
    await require_equal()
    _, found = await world.follower.latest(session, device.device_id)
    assert [(each.metric, each.value, each.text, each.unit) for each in found] == [
        ("depth", 7, None, None),
        ("humidity", 5, None, None),
        ("pressure", 1, None, None),
        ("serial", None, "A7", None),
        ("temperature", 300, None, "kelvin"),
    ]


async def test_readings_as_events_are_counted_up_to_a_limit(world: TelemetryWorld) -> None:
    devices = [await world.device(online=True), await world.device(online=True)]
    for device in devices:
        for value in range(3):
            await world.report(device, temperature=value, humidity=50)
    events = ReadingsAsEventsService(uow=world.uow, engine=world.engine)
    account_id = devices[0].account_id
    assert await events.count(account_id, device_id=None, limit=100) == 12
    assert await events.count(account_id, device_id=devices[0].device_id, limit=100) == 6
    assert await events.count(account_id, device_id=None, limit=5) == 5
    log = EventService(uow=world.uow, clock=world.clock, telemetry=events)
    assert (await log.page(world.session(), kind="telemetry", limit=2)).total == 12


async def test_pages_neither_skip_nor_repeat_messages_with_the_same_time(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_and_history, "PAGE_MESSAGES", 4)
    monkeypatch.setattr(latest_and_history, "EXPORT_PAGE_MESSAGES", 4)
    device = await world.device()
    started_ms = world.clock.now_ms()
    for value in range(10):
        await world.report(device, temperature=value)
        if value % 3:
            world.clock.forward(-1_000)
    found, _ = await world.telemetry.history(world.session(), device.device_id, ALL, metric="temperature", limit=1000)
    assert sorted(reading.value or 0 for reading in found) == list(range(10))
    exported = [
        r.value async for page in world.telemetry.export(world.session(), device.device_id, ALL, metric=None) for r in page
    ]
    assert sorted(value or 0 for value in exported) == list(range(10))
    assert started_ms <= found[-1].at_ms


async def test_texts_and_booleans_are_returned_as_text(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, mode="eco", door=True, level=2)
    _, latest = await world.telemetry.latest(world.session(), device.device_id)
    assert [(r.metric, r.value, r.text) for r in latest] == [("door", 1.0, "true"), ("level", 2.0, None), ("mode", None, "eco")]
    history, _ = await world.telemetry.history(world.session(), device.device_id, ALL, metric=None, limit=10)
    assert {(r.metric, r.value, r.text) for r in history} == {("door", 1.0, "true"), ("level", 2.0, None), ("mode", None, "eco")}


async def test_downsampling_gives_min_max_mean_and_count(world: TelemetryWorld) -> None:
    device = await world.device()
    started_ms = world.clock.now_ms()
    for value in (10, 20, 30):
        await world.report(device, temperature=value)
    span = HistoryTimeRange(started_ms, started_ms + 60_000)
    query = {"metric": "temperature", "step_ms": 60_000, "limit": 100}
    [bucket], _ = await world.downsampling.query_buckets(world.session(), device.device_id, span, **query)
    assert (bucket.low, bucket.high, bucket.mean, bucket.count, bucket.total, bucket.last) == (10, 30, 20, 3, 60, 30)
    long = HistoryTimeRange(1, started_ms)
    assert await world.downsampling.query_buckets(
        world.session(), device.device_id, long, metric=None, step_ms=1_000, limit=100
    ) == ([], None)


async def test_a_key_reads_only_devices_that_a_grant_covers(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=1)
    granted = await world.key((device.device_id, ["ON"]))
    _, readings = await world.telemetry.latest(granted, device.device_id)
    assert readings
    with pytest.raises(PermissionDenied):
        await world.telemetry.latest(await world.key(), device.device_id)
    with pytest.raises(NotFound):
        await world.telemetry.latest(world.session(), DeviceId("dev_99999999999999999999"))
