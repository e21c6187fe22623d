"""Buckets from roll-ups equal buckets from readings, to the last bit: with late readings, crashes and retention."""

from __future__ import annotations

import random
from typing import Any

import pytest

from domain.devices.model import Device
from domain.kernel.clock import DAY_MS, HOUR_MS
from domain.rules.ports import AggregateCell
from domain.telemetry import downsampling, rollups
from domain.telemetry.aggregation import ReferenceBucketAggregator, combine_cells, pack_rollup, unpack_rollup
from domain.telemetry.model import HistoryTimeRange
from domain.telemetry.retention import RetentionPeriods, RetentionService
from domain.telemetry.rollups import merge_by_higher_count
from support.telemetry_world import TelemetryWorld

STEPS = (HOUR_MS, 3 * HOUR_MS, DAY_MS)


async def device_with_readings(world: TelemetryWorld, hours: int = 30, each: int = 7, seed: int = 1) -> Device:
    """A device with random readings during the last `hours`."""
    world.clock.forward(HOUR_MS - world.clock.now_ms() % HOUR_MS)
    dice, device = random.Random(seed), await world.device()
    for _ in range(hours * each):
        values: dict[str, Any] = {"temperature": dice.uniform(-40, 60), "open": dice.random() < 0.5, "mode": "eco"}
        await world.report(device, **dict(dice.sample(sorted(values.items()), 2)))
        world.clock.forward(dice.randrange(2 * HOUR_MS // each))
    return device


async def roll_up(world: TelemetryWorld) -> int:
    total = 0
    while count := await world.rollups.run_once():
        total += count
    return total


async def cells_from_readings(world: TelemetryWorld, device: Device, span: HistoryTimeRange, step_ms: int) -> list[AggregateCell]:
    async with world.uow.read() as tx:
        rows = await tx.readings.list_between(device.device_no, span.since_ms, span.until_ms, 10**6)
    aggregator = ReferenceBucketAggregator(step_ms=HOUR_MS)
    aggregator.add(rows)
    return combine_cells(aggregator.cells(), step_ms)


async def query_buckets(world: TelemetryWorld, device: Device, span: HistoryTimeRange, step_ms: int) -> list[tuple[Any, ...]]:
    found, _ = await world.downsampling.query_buckets(
        world.session(), device.device_id, span, metric=None, step_ms=step_ms, limit=1000
    )
    return [(b.from_ms, b.metric, b.count, b.low, b.high, b.total, b.last) for b in found]


async def as_buckets(world: TelemetryWorld, device: Device, cells: list[AggregateCell]) -> list[tuple[Any, ...]]:
    async with world.uow.read() as tx:
        names = {number: name for number, name, _ in await tx.readings.list_device_metrics(device.device_no)}
    return [(c[0], names[c[1]], *c[2:7]) for c in cells]


async def assert_equal_to_readings(world: TelemetryWorld, device: Device, span: HistoryTimeRange) -> None:
    for step_ms in STEPS:
        expected = await as_buckets(world, device, await cells_from_readings(world, device, span, step_ms))
        assert await query_buckets(world, device, span, step_ms) == expected


def whole_range(world: TelemetryWorld) -> HistoryTimeRange:
    return HistoryTimeRange(world.clock.now_ms() - 100 * HOUR_MS - 1, world.clock.now_ms())


async def count_rollups(world: TelemetryWorld, device: Device) -> int:
    async with world.uow.read() as tx:
        return len(await tx.rollups.list_between(device.device_no, 0, 10**9, 10**6))


async def test_roll_ups_equal_the_readings_at_any_moment_and_for_any_span(world: TelemetryWorld) -> None:
    device = await device_with_readings(world)
    now = world.clock.now_ms()
    spans = [
        whole_range(world),
        HistoryTimeRange(now - 20 * HOUR_MS - 7, now - 3 * HOUR_MS + 5),
        HistoryTimeRange(now - 100, now),
        HistoryTimeRange(now - 2 * HOUR_MS, now),
    ]
    for span in spans:
        await assert_equal_to_readings(world, device, span)
    while await world.rollups.run_once():
        for span in spans:
            await assert_equal_to_readings(world, device, span)
    assert await count_rollups(world, device) > 25
    for span in spans:
        await assert_equal_to_readings(world, device, span)


async def test_a_query_reads_roll_ups_instead_of_readings(world: TelemetryWorld) -> None:
    device = await device_with_readings(world)
    await roll_up(world)
    before = await query_buckets(world, device, whole_range(world), DAY_MS)
    async with world.uow.write() as tx:
        end_ms = (world.clock.now_ms() - rollups.GRACE_MS) // HOUR_MS * HOUR_MS
        await tx.readings.delete_batch(device.device_no, 10**6, end_ms)
    assert await query_buckets(world, device, whole_range(world), DAY_MS) == before


async def test_the_current_hour_is_not_rolled_up(world: TelemetryWorld) -> None:
    device = await world.device()
    world.clock.forward(HOUR_MS - world.clock.now_ms() % HOUR_MS)
    await world.report(device, temperature=1)
    assert await world.rollups.run_once() == 0
    world.clock.forward(HOUR_MS + rollups.GRACE_MS)
    assert await world.rollups.run_once() == 1
    assert await world.rollups.run_once() == 0


async def test_late_readings_are_counted(world: TelemetryWorld) -> None:
    device = await device_with_readings(world)
    await roll_up(world)
    late_ms = world.clock.now_ms() - 12 * HOUR_MS
    await world.report(device, ts=late_ms, m={"temperature": 99.5})
    span = whole_range(world)
    await assert_equal_to_readings(world, device, span)
    assert await roll_up(world) == 1
    await assert_equal_to_readings(world, device, span)


async def test_a_reading_that_arrives_during_the_roll_up_of_its_hour_is_not_lost(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await device_with_readings(world, hours=3)
    world.clock.forward(2 * HOUR_MS)
    store = world.rollups._store

    async def interrupted(aggregated: Any) -> None:
        mark = aggregated[0][0]
        await world.report(device, ts=mark[1] * HOUR_MS + 1, m={"temperature": -273.0})
        await store(aggregated)

    monkeypatch.setattr(world.rollups, "_store", interrupted)
    await world.rollups.run_once()
    monkeypatch.undo()
    await assert_equal_to_readings(world, device, whole_range(world))
    await roll_up(world)
    await assert_equal_to_readings(world, device, whole_range(world))


async def test_a_crash_before_the_roll_up_is_stored_leaves_it_due(world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    device = await device_with_readings(world, hours=4)
    world.clock.forward(2 * HOUR_MS)

    async def crash(_: Any) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(world.rollups, "_store", crash)
    with pytest.raises(RuntimeError):
        await world.rollups.run_once()
    monkeypatch.undo()
    await assert_equal_to_readings(world, device, whole_range(world))
    assert await roll_up(world) > 0
    await assert_equal_to_readings(world, device, whole_range(world))


async def test_the_page_size_does_not_change_the_result(world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rollups, downsampling):
        monkeypatch.setattr(module, "PAGE_MESSAGES", 3)
    monkeypatch.setattr(downsampling, "PAGE_HOURS", 4)
    device = await device_with_readings(world)
    await assert_equal_to_readings(world, device, whole_range(world))
    await roll_up(world)
    await assert_equal_to_readings(world, device, whole_range(world))


def retention(world: TelemetryWorld) -> RetentionService:
    return RetentionService(uow=world.uow, clock=world.clock, periods=RetentionPeriods(readings=1, rollups=2))


async def test_readings_are_deleted_by_full_hours_and_only_after_their_roll_up(world: TelemetryWorld) -> None:
    device = await device_with_readings(world, hours=40)
    span = whole_range(world)
    before = await query_buckets(world, device, span, HOUR_MS)
    assert sum([deleted async for deleted in retention(world).purge_steps()]) == 0
    await roll_up(world)
    assert sum([deleted async for deleted in retention(world).purge_steps()]) > 0
    async with world.uow.read() as tx:
        [(oldest_ms, _)] = await tx.readings.list_between(device.device_no, 0, 2**50, 1, newest_first=False)
    assert oldest_ms >= (world.clock.now_ms() - DAY_MS) // HOUR_MS * HOUR_MS
    assert await query_buckets(world, device, span, HOUR_MS) == before


async def test_roll_ups_are_deleted_after_their_retention_period(world: TelemetryWorld) -> None:
    device = await device_with_readings(world, hours=80)
    await roll_up(world)
    [deleted async for deleted in retention(world).purge_steps()]
    found = await query_buckets(world, device, whole_range(world), HOUR_MS)
    assert min(row[0] for row in found) >= (world.clock.now_ms() - 2 * DAY_MS) // HOUR_MS * HOUR_MS
    assert len({row[0] for row in found}) > 40


async def test_a_late_reading_of_an_hour_without_readings_does_not_replace_its_roll_up(world: TelemetryWorld) -> None:
    device = await device_with_readings(world, hours=40)
    span = whole_range(world)
    await roll_up(world)
    [deleted async for deleted in retention(world).purge_steps()]
    before = await query_buckets(world, device, span, HOUR_MS)
    await world.report(device, ts=before[-1][0] + 5, m={before[-1][1]: 1})
    await roll_up(world)
    assert await query_buckets(world, device, span, HOUR_MS) == before


async def test_the_current_hour_of_a_device_is_marked_once(world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    device = await world.device()
    world.clock.forward(HOUR_MS - world.clock.now_ms() % HOUR_MS)
    marked: list[Any] = []
    remember = world.ingest._rollup_marks.remember
    monkeypatch.setattr(world.ingest._rollup_marks, "remember", lambda hours: (marked.extend(hours), remember(hours)))
    for value in range(5):
        await world.report(device, temperature=value)
    assert len(marked) == 1
    world.clock.forward(HOUR_MS)
    await world.report(device, temperature=9)
    assert len(marked) == 2
    assert len(world.ingest._rollup_marks._marked) == 1


def test_a_packed_roll_up_unpacks_to_the_same_cells() -> None:
    cells: list[AggregateCell] = [
        (7 * HOUR_MS, 3, 2, -1.5, 2.0, 0.5, 2.0, 7 * HOUR_MS + 9),
        (7 * HOUR_MS, 1, 1, 0.0, 0.0, 0.0, 0.0, 7 * HOUR_MS),
    ]
    assert list(unpack_rollup(7, pack_rollup(cells))) == cells[::-1]
    assert list(unpack_rollup(7, pack_rollup(cells), 3)) == cells[:1]
    with pytest.raises(ValueError):
        list(unpack_rollup(7, pack_rollup(cells)[:-1]))


def test_merging_two_roll_ups_keeps_the_higher_count_of_each_metric() -> None:
    def cell(metric: int, count: int) -> AggregateCell:
        return (0, metric, count, 0.0, 0.0, 0.0, 0.0, 0)

    assert merge_by_higher_count([cell(1, 2), cell(2, 1)], [cell(1, 1), cell(2, 5), cell(3, 1)]) == [
        cell(1, 2),
        cell(2, 5),
        cell(3, 1),
    ]
