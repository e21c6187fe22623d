"""Both engines: the latest value of a metric is the one with the greatest time among all that were stored, also if it came late,
and a restart loses none, whenever it comes and whenever the last checkpoint was taken.

LATCHBOARD_PROPERTY_CASES sets how many cases there are (2,000 by default), LATCHBOARD_PROPERTY_SEED the number of the first one.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from adapters.engine.native import NativeEngine
from domain.rules.model import MetricValue
from domain.telemetry import packing
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from domain.telemetry.reference_parser import MAX_AHEAD_MS
from property import engine_cases as cases
from property.engine_run import EngineRun

CASES = int(os.environ.get("LATCHBOARD_PROPERTY_CASES", "2000"))
SEED = int(os.environ.get("LATCHBOARD_PROPERTY_SEED", "0"))
CHUNKS = 4


class _Stored:
    """What was stored of each metric: per device, by metric, the greatest time and the values of that time."""

    def __init__(self) -> None:
        self.latest: dict[int, dict[str, tuple[int, list[MetricValue]]]] = {}
        self.disbelieved = False
        """A time was too far ahead of the present to be believed, so a restart may know better."""

    def add(self, run: EngineRun, row: tuple[int, int, int, bytes], now_ms: int | None) -> None:
        names = dict(run.numbers.rows)
        metrics = self.latest.setdefault(row[0], {})
        for number, value in packing.unpack_readings(row[3]):
            at_ms, values = metrics.get(names[number], (row[1], []))
            ahead = now_ms is not None and at_ms > max(now_ms + MAX_AHEAD_MS, row[1])
            self.disbelieved |= ahead
            if row[1] > at_ms or ahead:
                metrics[names[number]] = (row[1], [value])
            elif row[1] == at_ms:
                metrics[names[number]] = (at_ms, [*values, value])

    def act(self, run: EngineRun, action: cases.Action, done: Any) -> None:
        match action:
            case cases.Ingest(_, now_ms):
                for result in done:
                    for row in result["rows"]:
                        self.add(run, row, now_ms)
            case cases.RemoveDevice(device_no):
                self.latest.pop(device_no, None)

    def assert_shown(self, run: EngineRun, where: str, *, any_of_a_time: bool) -> None:
        """`any_of_a_time`: which of two values of one millisecond was the last is not stored."""
        for device_no, metrics in self.latest.items():
            found = {each.metric: each for each in run.engine.latest(device_no)}
            assert {name: each.ts_ms for name, each in found.items()} == {name: at for name, (at, _) in metrics.items()}, where
            for name, (_, values) in metrics.items():
                possible = values if any_of_a_time else values[-1:]
                assert repr(found[name].value) in map(repr, possible), where


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("make", [ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def test_the_latest_value_is_the_stored_one_with_the_greatest_time(
    make: type[NativeEngine] | type[ReferenceTelemetryEngine], chunk: int
) -> None:
    for number in range(SEED + chunk, SEED + CASES, CHUNKS):
        run, stored, has_restarted = EngineRun(make), _Stored(), False
        for step, action in enumerate(cases.case(number)):
            where = f"case {number}, step {step}: {action}"
            if isinstance(action, cases.Restart):
                if stored.disbelieved:
                    break
                action = cases.Restart(action.rules_first, None)
                has_restarted = True
            stored.act(run, action, run.act(action))
            stored.assert_shown(run, where, any_of_a_time=has_restarted)
