"""Time buckets equal a model that keeps every reading in a list.

Readings arrive on time, late or twice, and any part of them may be in roll-ups already."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from domain.devices.model import Device
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS
from domain.telemetry.model import BucketStatistics, HistoryTimeRange
from support.telemetry_world import TelemetryWorld

METRICS = ("temperature", "power", "mode")
VALUES = st.one_of(
    st.integers(-1_000, 1_000),
    st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3)),
    st.booleans(),
    st.sampled_from(["eco", "é", ""]),
)
Message = tuple[int, dict[str, Any]]
"""(ms before now, values)"""
MESSAGES = st.tuples(
    st.one_of(st.just(0), st.integers(0, 9 * HOUR_MS), st.integers(0, 9).map(lambda hours: hours * HOUR_MS)),
    st.dictionaries(st.sampled_from(METRICS), VALUES, min_size=1),
)
STEPS = st.one_of(
    st.lists(MESSAGES, min_size=1, max_size=6),
    st.integers(0, 3 * HOUR_MS),  # time passes
    st.just("roll up"),
)
ENDS = st.tuples(st.integers(0, 12 * HOUR_MS), st.integers(0, 12 * HOUR_MS)).filter(lambda ends: ends[0] != ends[1])
LENGTHS = st.sampled_from([MINUTE_MS * 90, HOUR_MS, 2 * HOUR_MS, DAY_MS, 7 * MINUTE_MS])


@dataclass
class Model:
    readings: set[tuple[int, tuple[Any, ...]]] = field(default_factory=set)

    def add(self, at_ms: int, values: dict[str, Any]) -> None:
        typed = tuple((name, type(value).__name__, value) for name, value in sorted(values.items()))
        self.readings.add((at_ms, typed))

    def buckets(self, since_ms: int, until_ms: int, step_ms: int) -> dict[tuple[int, str], list[tuple[int, float]]]:
        found: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
        for at_ms, values in self.readings:
            for name, _, value in values:
                if since_ms <= at_ms < until_ms and not isinstance(value, str):
                    found[at_ms // step_ms * step_ms, name].append((at_ms, float(value)))
        return found


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=12), st.lists(st.tuples(ENDS, LENGTHS), min_size=1, max_size=4))
def test_a_bucket_contains_what_its_readings_give(steps: list[Any], queries: list[Any]) -> None:
    asyncio.run(run_scenario(steps, queries))


async def run_scenario(steps: list[Any], queries: list[Any]) -> None:
    world, model = TelemetryWorld(), Model()
    await world.populate()
    device = await world.device()
    for step in steps:
        if step == "roll up":
            while await world.rollups.run_once():
                pass
        elif isinstance(step, int):
            world.clock.forward(step)
        else:
            await report_all(world, model, device, step)
    for (one, other), step_ms in queries:
        now_ms = world.clock.now_ms()
        await assert_equal_to_model(
            world, model, device, HistoryTimeRange(now_ms - max(one, other), now_ms - min(one, other)), step_ms
        )


async def report_all(world: TelemetryWorld, model: Model, device: Device, messages: list[Message]) -> None:
    for before_ms, values in messages:
        at_ms = world.clock.now_ms() - before_ms
        model.add(at_ms, values)
        await world.report(device, ts=at_ms, m=values)


async def assert_equal_to_model(
    world: TelemetryWorld, model: Model, device: Device, span: HistoryTimeRange, step_ms: int
) -> None:
    found, _ = await world.downsampling.query_buckets(
        world.session(), device.device_id, span, metric=None, step_ms=step_ms, limit=1000
    )
    await assert_equal_in_pages(world, device, span, step_ms, found)
    expected = model.buckets(span.since_ms, span.until_ms, step_ms)
    assert [bucket.from_ms for bucket in found] == sorted((bucket.from_ms for bucket in found), reverse=True)
    assert {(bucket.from_ms, bucket.metric) for bucket in found} == set(expected)
    for bucket in found:
        readings = expected[bucket.from_ms, bucket.metric]
        values = [value for _, value in readings]
        assert (bucket.count, bucket.low, bucket.high) == (len(values), min(values), max(values))
        assert math.isclose(bucket.total, math.fsum(values), rel_tol=1e-9, abs_tol=1e-6)
        assert math.isclose(bucket.mean, math.fsum(values) / len(values), rel_tol=1e-9, abs_tol=1e-6)
        newest_ms = max(at_ms for at_ms, _ in readings)
        assert bucket.last in {value for at_ms, value in readings if at_ms == newest_ms}


async def assert_equal_in_pages(
    world: TelemetryWorld, device: Device, span: HistoryTimeRange, step_ms: int, whole: list[BucketStatistics]
) -> None:
    """Two of three metrics, in both directions, three buckets at a time."""
    wanted = [bucket for bucket in whole if bucket.metric in METRICS[:2]]
    for newest_first in (True, False):
        pages, after = list[BucketStatistics](), None
        while True:
            page, after = await world.downsampling.query_buckets(
                world.session(),
                device.device_id,
                span,
                metric=", ".join(METRICS[:2]),
                step_ms=step_ms,
                limit=3,
                after=after,
                newest_first=newest_first,
            )
            pages += page
            if after is None:
                break
        times = [bucket.from_ms for bucket in pages]
        assert times == sorted(times, reverse=newest_first)
        assert sorted(pages, key=lambda one: (-one.from_ms, one.metric)) == sorted(
            wanted, key=lambda one: (-one.from_ms, one.metric)
        )
