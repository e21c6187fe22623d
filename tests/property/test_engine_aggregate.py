"""The native aggregator equals the reference aggregator, and the roll-up hours of a batch are the hours of its rows."""

from __future__ import annotations

import json
import random

import pytest

from adapters.engine.native import NativeEngine
from domain.telemetry.packing import pack_readings
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support.engine import ingest_batch

T0 = 1_790_000_000_000
EDGE_VALUES = [0.0, -0.0, 1e308, -1e308, 1.7e308, 5e-324, 2.0**31, -(2.0**31), 0.1, "text", True, False, "é"]


@pytest.mark.parametrize("seed", range(200))
def test_both_aggregators_are_equal_to_the_last_bit(seed: int) -> None:
    dice = random.Random(seed)
    times = sorted((T0 + dice.randrange(200_000) for _ in range(dice.randrange(120))), reverse=True)
    rows = [(at_ms, pack_readings((dice.randrange(5), _value(dice)) for _ in range(dice.randrange(6)))) for at_ms in times]
    step_ms, only = dice.choice([1, 1_000, 60_000, 3_600_000]), dice.choice([None, None, 0, 3])
    native, reference = (
        NativeEngine().create_aggregator(step_ms, only),
        ReferenceTelemetryEngine().create_aggregator(step_ms, only),
    )
    while rows:
        cut = dice.randrange(1, 40)
        native.add(rows[:cut])
        reference.add(rows[:cut])
        rows = rows[cut:]
    assert repr(native.cells()) == repr(reference.cells())


def _value(dice: random.Random) -> float | bool | str:
    return dice.choice([dice.uniform(-1e3, 1e3), float(dice.randrange(-50, 50)), *dice.sample(EDGE_VALUES, 2)])


def test_both_aggregators_reject_bytes_that_are_no_row() -> None:
    for engine in (NativeEngine(), ReferenceTelemetryEngine()):
        with pytest.raises(ValueError):
            engine.create_aggregator(1_000).add([(T0, b"\xff")])


def test_the_rollup_hours_of_a_batch_are_the_hours_of_its_rows() -> None:
    dice = random.Random(7)
    hour = 3_600_000
    messages = [
        (dice.randrange(4), T0, json.dumps({"ts": T0 - dice.randrange(5) * hour, "m": {"a": 1}}).encode()) for _ in range(50)
    ]
    for engine in (NativeEngine(), ReferenceTelemetryEngine()):
        result = ingest_batch(engine, PythonTelemetryBatch.of(messages))
        assert result.rollup_hours == sorted({(row[0], row[1] // hour) for row in result.rows})
