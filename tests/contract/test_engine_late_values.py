"""Both engines: a late value is the latest one where its metric has nothing newer; rules never see it; no restart loses it."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.engine.native import NativeEngine
from domain.rules.ports import BatchResult, TelemetryEngine
from domain.telemetry import packing
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support.engine import DEVICE, EngineDriver, ms, rule

HOT = ("t", ">", 30.0)


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    return request.param()


def at(ts_s: float, **values: float | str | bool) -> dict[str, Any]:
    return {"ts": ms(ts_s), "m": values}


def shown(engine: TelemetryEngine) -> dict[str, tuple[object, float]]:
    """By metric: the latest value, and its time in seconds after the first instant."""
    return {each.metric: (each.value, (each.ts_ms - ms(0)) / 1000) for each in engine.latest(DEVICE)}


def restarted(driver: EngineDriver, *results: BatchResult) -> EngineDriver:
    """The engine after a kill right after these batches were stored; there was no other checkpoint."""
    fresh = type(driver.engine)()
    fresh.add_metric_names(driver.numbers.rows)
    newest_ms, checkpoints = -1, [each for result in results for each in result.checkpoints]
    if checkpoints:
        _, newest_ms, latest = checkpoints[-1]
        fresh.restore(DEVICE, latest, ms(1_000))
    for row in sorted(row for result in results for row in result.rows if row[1] > newest_ms):
        fresh.replay(*row[:2], row[3], ms(1_000))
    again = EngineDriver(fresh, *driver.rules.values())
    again.numbers = driver.numbers
    return again


@pytest.mark.parametrize("value", [31.0, True, "eco"])
def test_a_metric_that_came_only_late_has_a_latest_value_also_after_a_kill(engine: TelemetryEngine, value: float | str) -> None:
    driver = EngineDriver(engine)
    first, late = driver.send(at(100, p=1.0), 100), driver.send(at(40, t=value), 101)
    assert shown(engine) == {"p": (1.0, 100), "t": (value, 40)}
    assert [device_no for device_no, _, _ in late.checkpoints] == [DEVICE]
    assert shown(restarted(driver, first, late).engine) == shown(engine)


def test_of_late_uploads_the_greatest_time_counts_in_any_order(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    results = [driver.send(at(100, p=1.0), 100)]
    results.append(driver.send_all([at(40, t=4.0, p=9.0), at(60, t=6.0), at(50, t=5.0, q=5.0), at(60, t=6.5)], 101))
    assert shown(engine) == {"p": (1.0, 100), "t": (6.5, 60), "q": (5.0, 50)}
    assert len(results[1].checkpoints) == 1
    assert shown(restarted(driver, *results).engine) == shown(engine)


def test_a_late_value_that_is_older_than_the_latest_one_changes_nothing(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send(at(50, t=5.0), 50)
    driver.send(at(100, p=1.0), 100)
    assert driver.send(at(49, t=4.0), 101).checkpoints == []
    assert shown(engine) == {"t": (5.0, 50), "p": (1.0, 100)}
    assert driver.send(at(51, t=5.1), 102).checkpoints != []
    assert shown(engine) == {"t": (5.1, 51), "p": (1.0, 100)}


def test_rules_never_see_a_late_value(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT), rule(("t", "silent", 500), no=2))
    results = [driver.send(at(100, p=1.0), 100), driver.send(at(90, t=31.0), 101)]
    assert (driver.fired(at(110, p=2.0), 110), engine.next_timer_ms()) == ([], None)
    assert not engine.dry_run(DEVICE, rule(HOT), {}, ms(110)).holds
    again = restarted(driver, *results)
    assert (again.fired(at(110, p=2.0), 110), again.engine.next_timer_ms()) == ([], None)
    assert again.fired(at(120, t=32.0), 120) == [1]
    assert shown(again.engine) == {"p": (2.0, 110), "t": (32.0, 120)}


def test_rules_go_on_with_what_they_saw_where_a_late_value_is_newer(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, ("p", "==", 2)))
    driver.send(at(50, t=31.0), 50)
    driver.send(at(100, p=1.0), 100)
    driver.send(at(60, t=20.0), 101)
    assert driver.fired(at(110, p=2.0), 110) == [1]
    assert shown(engine) == {"t": (20.0, 60), "p": (2.0, 110)}


def test_a_message_of_a_clock_set_back_drives_rules_and_is_not_the_latest_value(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT))
    results = [driver.send(at(100, t=1.0, mode="eco"), 100), driver.send(at(40, t=2.0), 101)]
    results.append(driver.send(at(41, t=31.0, mode="heat"), 101 + 120))  # late for two minutes: the newest time is not believed
    assert [each.rule_no for each in results[-1].rule_firings] == [1]
    assert shown(engine) == {"t": (1.0, 100), "mode": ("eco", 100)}
    [(_, newest_ms, latest)] = engine.checkpoint(9)
    fresh = type(engine)()
    fresh.add_metric_names(driver.numbers.rows)
    fresh.restore(DEVICE, latest)
    assert (newest_ms, shown(fresh)) == (ms(41), shown(engine))


def test_a_time_from_a_service_clock_that_was_ahead_gives_way(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send({"t": 1}, 3_600)
    engine.shift_clock(-3_600_000, ms(10))
    batch = PythonTelemetryBatch.of([(DEVICE, ms(11), b'{"t":2}')])
    engine.ingest(batch, ms(11))
    assert shown(engine) == {"t": (2, 11)}


def test_a_value_of_the_same_millisecond_as_the_checkpoint_survives_a_kill(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    first = driver.send(at(100, p=1.0), 100)
    assert first.checkpoints == []
    assert driver.send(at(100, q=1.0), 100).checkpoints == []  # replayed: there is no checkpoint of this time
    engine.checkpoint(9)
    second, third = driver.send(at(100, t=2.0), 100), driver.send(at(100, u=3.0), 100)
    assert shown(restarted(driver, first, second, third).engine) == {**shown(engine), "u": (3.0, 100)}
    assert (len(second.checkpoints), len(third.checkpoints)) == (1, 1)
    assert driver.send(at(101, t=2.0), 101).checkpoints == []
    assert driver.send(at(101, p=2.0), 101).checkpoints == []


def test_a_row_that_another_instance_stored_late_is_shown_after_its_replay(engine: TelemetryEngine) -> None:
    engine.add_metric_names([(1, "t"), (2, "p")])
    engine.replay(DEVICE, ms(100), packing.pack_readings([(2, 1.0)]), ms(100))
    for _ in range(2):
        engine.replay(DEVICE, ms(40), packing.pack_readings([(1, 4.0)]), ms(101))
        engine.replay(DEVICE, ms(50), packing.pack_readings([(1, 5.0), (2, 9.0)]), ms(101))
    assert shown(engine) == {"p": (1.0, 100), "t": (5.0, 50)}


def test_a_late_value_of_a_metric_keeps_its_unit(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    first = driver.send(at(100, p=1.0), 100)
    late = driver.send({**at(40, t=4.0), "u": {"t": "C"}}, 101)
    again = restarted(driver, first, late).engine
    assert [(each.metric, each.unit) for each in again.latest(DEVICE)] == [("p", None), ("t", "C")]
