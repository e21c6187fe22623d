"""Both engines hold the devices of several partitions, and give one up without touching the others."""

from __future__ import annotations

import pytest

from adapters.engine.native import NativeEngine, make_batch
from domain.partitions.model import partition_of
from domain.rules.ports import TelemetryEngine
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from support.engine import T0, ingest_batch, ms, rule

PARTITIONS = 4
DEVICES = range(1, 41)
DROPPED = 2
MINE = [device_no for device_no in DEVICES if partition_of(device_no, PARTITIONS) == DROPPED]
OTHERS = [device_no for device_no in DEVICES if device_no not in MINE]


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    engine: TelemetryEngine = request.param()
    for device_no in DEVICES:
        engine.set_rules(device_no, [rule(("t", "silent", 60), no=device_no), rule(("t", ">", 30), no=100 + device_no)])
    ingest_batch(engine, make_batch([(device_no, T0, b'{"t": 20}') for device_no in DEVICES]))
    return engine


def test_a_dropped_partition_has_no_values_rules_timers_or_checkpoints(engine: TelemetryEngine) -> None:
    assert engine.drop_partition(DROPPED, PARTITIONS) == len(MINE)
    assert [device_no for device_no in DEVICES if engine.latest(device_no)] == OTHERS
    assert sorted(device_no for device_no, _, _ in engine.checkpoint(100)) == OTHERS
    assert [fired.rule_no for fired in engine.tick(ms(61)).rule_firings] == OTHERS
    assert engine.next_timer_ms() is None
    late = engine.ingest(make_batch([(device_no, ms(62), b'{"t": 31}') for device_no in DEVICES]))
    assert [fired.rule_no - 100 for fired in late.rule_firings] == OTHERS
    assert engine.drop_partition(DROPPED, PARTITIONS) == len(MINE)
    assert engine.drop_partition(DROPPED, PARTITIONS) == 0


def test_a_partition_that_comes_back_continues_from_what_was_stored(engine: TelemetryEngine) -> None:
    stored = {device_no: latest for device_no, _, latest in engine.checkpoint_partition(DROPPED, PARTITIONS, 100)}
    assert sorted(stored) == MINE
    engine.drop_partition(DROPPED, PARTITIONS)
    for device_no, latest in stored.items():
        engine.restore(device_no, latest)
        engine.set_rules(device_no, [rule(("t", "silent", 60), no=device_no)])
    assert engine.next_timer_ms() == ms(60)
    assert [fired.rule_no for fired in engine.tick(ms(61)).rule_firings] == list(DEVICES)


def test_checkpoints_of_a_partition_are_taken_in_portions_and_leave_the_others(engine: TelemetryEngine) -> None:
    portions = [engine.checkpoint_partition(DROPPED, PARTITIONS, len(MINE) - 1) for _ in range(3)]
    assert [len(portion) for portion in portions] == [len(MINE) - 1, 1, 0]
    assert sorted(device_no for device_no, _, _ in engine.checkpoint(100)) == OTHERS
