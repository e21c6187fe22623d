"""Both engines: time in which the service could not hear a device is neither its silence nor waiting."""

from __future__ import annotations

import pytest

from adapters.engine.native import NativeEngine
from domain.rules.ports import TelemetryEngine
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from support.engine import DEVICE, EngineDriver, ms, rule

SILENT = ("t", "silent", 8)
HOT = ("t", ">", 30.0)
DAY_S = 86_400


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    return request.param()


def fired_at(driver: EngineDriver, at_s: float) -> list[int]:
    return [each.rule_no for each in driver.tick(at_s).rule_firings]


def test_a_silence_does_not_go_on_while_nobody_can_hear(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT))
    driver.send({"t": 20}, 0)
    engine.deafen(ms(5), ms(5))
    assert engine.next_timer_ms() is None
    assert fired_at(driver, DAY_S) == []
    driver.hear_all(DAY_S)
    assert engine.next_timer_ms() == ms(DAY_S + 3)
    assert fired_at(driver, DAY_S + 2.9) == []
    assert fired_at(driver, DAY_S + 3) == [1]


def test_a_device_that_speaks_is_heard_at_once_and_others_are_not(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT), rule(("u", "silent", 10), no=2))
    driver.send({"t": 20, "u": 1}, 0)
    driver.send({"t": 20}, 0, device_no=DEVICE + 1)
    engine.deafen(ms(5), ms(5))
    driver.send({"t": 21}, 100)
    assert engine.next_timer_ms() == ms(105)  # `u` has been silent for five seconds that count
    assert fired_at(driver, 105) == [2]
    assert fired_at(driver, 108) == [1]


def test_a_message_that_waited_in_a_log_does_not_end_the_silence(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT), rule(HOT, no=2, for_seconds=20))
    driver.send({"t": 20}, 0)
    engine.deafen(ms(5), ms(100))
    assert driver.fired({"t": 31}, 6) == []
    assert engine.next_timer_ms() is None
    assert fired_at(driver, 99) == []
    driver.send({"t": 31}, 100)
    assert engine.next_timer_ms() == ms(108)
    assert fired_at(driver, 108) == [1]
    assert fired_at(driver, 119.9) == []
    assert fired_at(driver, 120) == [2]


def test_a_wait_stands_still_and_its_state_is_stored(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=10))
    driver.send({"t": 31}, 0)
    engine.deafen(ms(4), ms(4))
    result = driver.hear_all(1_000)
    assert [each.held_since_ms for each in result.rule_transitions] == [ms(996)]
    assert not result.rule_transitions[0].matched_changed
    assert fired_at(driver, 1_005.9) == []
    assert fired_at(driver, 1_006) == [1]


def test_a_cooldown_goes_on(engine: TelemetryEngine) -> None:
    """It counts from what the service itself did."""
    driver = EngineDriver(engine, rule(HOT, cooldown_seconds=60))
    assert driver.fired({"t": 31}, 0) == [1]
    driver.send({"t": 20}, 1)
    engine.deafen(ms(5), ms(5))
    assert driver.fired({"t": 31}, 61) == [1]


def test_the_moved_silence_survives_a_restart(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT))
    driver.send({"t": 20}, 0)
    engine.deafen(ms(5), ms(5))
    driver.hear_all(1_000)
    [(device_no, _, latest)] = engine.checkpoint(10)
    restarted = type(engine)()
    restarted.add_metric_names(driver.numbers.rows)
    restarted.restore(device_no, latest, ms(1_001))
    again = EngineDriver(restarted, rule(SILENT))
    assert fired_at(again, 1_002.9) == []
    assert fired_at(again, 1_003) == [1]


def test_a_second_absence_before_anybody_spoke_is_one_with_the_first(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT))
    driver.send({"t": 20}, 0)
    engine.deafen(ms(5), ms(5))
    engine.deafen(ms(500), ms(500))
    driver.hear_all(1_000)
    assert engine.next_timer_ms() == ms(1_003)


def test_only_the_partition_is_deaf(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    for device_no in (1, 2, 3, 4):
        engine.set_rules(device_no, [rule(SILENT, no=device_no)])
        driver.rules |= {device_no: rule(SILENT, no=device_no)}
        driver.send({"t": 20}, 0, device_no)
    engine.deafen(ms(5), ms(5), (0, 2))
    early = fired_at(driver, 50)
    driver.hear_all(60)
    assert sorted(early + fired_at(driver, 63)) == [1, 2, 3, 4]
    assert 0 < len(early) < 4


def test_a_rule_that_is_saved_meanwhile_waits_as_well(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send({"t": 20}, 0)
    engine.deafen(ms(5), ms(5))
    engine.set_rules(DEVICE, [rule(SILENT)])
    driver.rules[1] = rule(SILENT)
    assert engine.next_timer_ms() is None
    driver.hear_all(1_000)
    assert fired_at(driver, 1_003) == [1]


def test_a_clock_that_is_set_meanwhile_changes_nothing(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT))
    driver.send({"t": 20}, 0)
    engine.deafen(ms(5), ms(5))
    engine.shift_clock(3_600_000, ms(3_610))
    driver.hear_all(3_620)
    assert engine.next_timer_ms() == ms(3_623)


def test_the_offset_of_the_devices_clock_is_not_made_of_the_absence(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(SILENT))
    driver.send({"ts": ms(0), "m": {"t": 20}}, 1)
    assert engine.clock_offsets([DEVICE]) == [(DEVICE, -1_000)]
    engine.deafen(ms(5), ms(5))
    driver.hear_all(1_000)
    assert engine.clock_offsets([DEVICE]) == []
