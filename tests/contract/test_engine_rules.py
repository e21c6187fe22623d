"""Both engines evaluate rules alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.engine.native import NativeEngine
from domain.kernel.errors import ValidationFailed
from domain.rules.model import Comparator, MatchMode, RuleCondition, RuleState, RuleSuppression
from domain.rules.ports import TelemetryEngine
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from support.engine import DEVICE, EngineDriver, ms, rule

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "conditions.json").read_text())
HOT = ("t", ">", 30.0)


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    return request.param()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['reading']} {each['comparator']} {each['value']!r}")
def test_a_condition_holds_as_in_the_vectors(engine: TelemetryEngine, vector: dict[str, Any]) -> None:
    driver = EngineDriver(engine, rule(("x", vector["comparator"], vector["value"])))
    reading = "" if vector["reading"] is None else f', "x": {vector["reading"]}'
    assert bool(driver.send(f'{{"other": 1{reading}}}').rule_firings) is vector["holds"]
    explanation = engine.dry_run(DEVICE, driver.rules[1], {}, ms(0))
    assert explanation.holds is vector["holds"]
    assert explanation.conditions[0].why


def test_a_rule_fires_at_the_change_and_not_while_it_stays_matched(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT))
    assert [driver.fired({"t": value}, i) for i, value in enumerate((29, 31, 32, 29, 31))] == [[], [1], [], [], [1]]


def test_every_change_of_state_is_reported_with_what_must_be_stored(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT))
    edge = driver.send({"t": 31}, 5).rule_transitions[0]
    assert (edge.device_no, edge.rule_no, edge.at_ms, edge.matched, edge.matched_changed) == (DEVICE, 1, ms(5), True, True)
    assert edge.state == RuleState(matched=True, last_fired_ms=ms(5))


def test_a_metric_that_is_not_in_the_message_keeps_its_last_value(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, ("h", "<", 50)))
    assert driver.fired({"t": 31}) == []
    assert driver.fired({"h": 40}, 1) == [1]


def test_any_needs_one_condition_and_all_needs_every(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, ("h", ">", 1), match=MatchMode.ANY), rule(HOT, ("h", ">", 1), no=2, command="FAN"))
    assert driver.fired({"t": 31, "h": 0}) == [1]
    assert driver.fired({"h": 2}, 1) == [2]


def test_a_disabled_rule_does_nothing(engine: TelemetryEngine) -> None:
    assert EngineDriver(engine, rule(HOT, enabled=False)).fired({"t": 31}) == []


def test_for_seconds_fires_by_its_timer_and_not_earlier(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=10))
    assert driver.fired({"t": 31}, 0) == []
    assert engine.next_timer_ms() == ms(10)
    assert driver.tick(9.999).rule_firings == []
    assert [each.at_ms for each in driver.tick(10).rule_firings] == [ms(10)]
    assert engine.next_timer_ms() is None


def test_for_seconds_restarts_when_the_conditions_stop_holding(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=10))
    driver.send({"t": 31}, 0)
    driver.send({"t": 29}, 8)
    assert engine.next_timer_ms() is None
    driver.send({"t": 31}, 9)
    assert driver.tick(18).rule_firings == []
    assert driver.fired({"t": 35}, 19) == [1]


def test_for_seconds_continues_after_a_restart(engine: TelemetryEngine) -> None:
    before = EngineDriver(engine, rule(HOT, for_seconds=10))
    before.send({"t": 31}, 0)
    after = EngineDriver(_restart(engine, before))
    after.rules = before.rules
    assert after.engine.next_timer_ms() == ms(10)
    assert [each.rule_no for each in after.tick(60).rule_firings] == [1]


def test_a_restart_keeps_the_rule_state_and_does_not_fire_again(engine: TelemetryEngine) -> None:
    before = EngineDriver(engine, rule(HOT))
    before.send({"t": 31}, 0)
    after = EngineDriver(_restart(engine, before))
    after.rules = before.rules
    assert after.fired({"t": 32}, 1) == []
    assert after.fired({"t": 29}, 2) == []
    assert after.fired({"t": 31}, 3) == [1]


def _restart(engine: TelemetryEngine, before: EngineDriver) -> TelemetryEngine:
    fresh = type(engine)()
    fresh.add_metric_names([(1, "t")])
    for device_no, _, latest in engine.checkpoint(10):
        fresh.restore(device_no, latest)
    fresh.set_rules(DEVICE, list(before.rules.values()))
    return fresh


def test_clear_conditions_keep_a_rule_matched_until_they_hold(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, clear=[("t", "<", 25.0)]))
    assert [driver.fired({"t": value}, i) for i, value in enumerate((31, 28, 31, 24, 31))] == [[1], [], [], [], [1]]


def test_a_rule_does_not_match_while_its_clear_conditions_hold(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, clear=[("off", "==", 1)]))
    assert driver.fired({"t": 31, "off": True}) == []
    assert driver.fired({"off": False}, 1) == [1]


def test_a_match_during_the_cooldown_does_not_fire_later(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, cooldown_seconds=10))
    assert driver.fired({"t": 31}, 0) == [1]
    driver.send({"t": 29}, 1)
    held = driver.send({"t": 31}, 2)
    assert (held.rule_firings, held.rule_suppressions) == ([], [RuleSuppression(DEVICE, 1, ms(2), None)])
    assert driver.state() == RuleState(matched=True, last_fired_ms=ms(0))
    assert driver.tick(20).rule_firings == []
    driver.send({"t": 29}, 21)
    assert driver.fired({"t": 31}, 22) == [1]


def test_silence_fires_by_the_timer_and_ends_with_the_next_report(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(("t", "silent", 600)))
    driver.send({"t": 1}, 0)
    driver.send({"other": 1}, 300)
    assert engine.next_timer_ms() == ms(600)
    assert [each.rule_no for each in driver.tick(600).rule_firings] == [1]
    driver.send({"t": 1}, 700)
    assert not driver.state().matched
    assert engine.next_timer_ms() == ms(1300)


def test_silence_that_is_overdue_when_the_rule_is_created_is_due_at_once(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send({"t": 1}, 0)
    silent = rule(("t", "silent", 10))
    engine.set_rules(DEVICE, [silent])
    driver.rules = {1: silent}
    assert engine.next_timer_ms() == ms(10)
    assert [each.at_ms for each in driver.tick(100).rule_firings] == [ms(100)]


def test_a_rule_that_current_values_satisfy_waits_for_the_next_message(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send({"t": 31}, 0)
    driver.rules = {1: rule(HOT)}
    engine.set_rules(DEVICE, [rule(HOT)])
    assert driver.tick(1).rule_firings == []
    assert driver.fired({"t": 31}, 2) == [1]


def test_firing_order_is_priority_then_age(engine: TelemetryEngine) -> None:
    rules = [rule(HOT, no=no, command=f"C{no}", priority=priority) for no, priority in ((1, 100), (2, 5), (3, 5), (4, -1))]
    assert EngineDriver(engine, *rules).fired({"t": 31}) == [4, 2, 3, 1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[("FAN", "FAN"), ("ON", "OFF"), ("OFF", "ON"), ("ON", "ON"), ("OPEN", "CLOSE"), ("CLOSE", "OPEN")],
        *[("ON#2", "OFF#2"), ("OFF#64", "ON#64"), ("CLOSE#3", "OPEN#3"), ("FAN#2", "FAN#2")],
    ],
)
def test_the_first_rule_wins_when_rules_fire_together_with_contradicting_commands(
    engine: TelemetryEngine, first: str, second: str
) -> None:
    driver = EngineDriver(engine, rule(HOT, no=1, command=second), rule(HOT, no=2, command=first, priority=1))
    result = driver.send({"t": 31})
    assert [each.rule_no for each in result.rule_firings] == [2]
    assert result.rule_suppressions == [RuleSuppression(DEVICE, 1, ms(0), 2)]
    assert driver.state(1) == RuleState(matched=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [("ON", "FAN"), ("ON", "OFF#2"), ("ON#2", "OFF"), ("ON#2", "OFF#3"), ("ON#2", "ON#3"), ("ON", "CLOSE"), ("OPEN#2", "OFF#2")],
)
def test_rules_with_unrelated_commands_both_fire(engine: TelemetryEngine, first: str, second: str) -> None:
    """A command of another channel is `ON#2`."""
    assert EngineDriver(engine, rule(HOT, command=first), rule(HOT, no=2, command=second)).fired({"t": 31}) == [1, 2]


def test_a_late_message_evaluates_no_rule(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT))
    driver.send({"ts": ms(10), "m": {"t": 20}}, 10)
    late = driver.send({"ts": ms(9), "m": {"t": 31}}, 11)
    assert (len(late.rows), late.rule_firings) == (1, [])
    assert engine.latest(DEVICE)[0].value == 20


def test_a_dry_run_uses_given_readings_before_latest_values(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, ("mode", "==", "eco")))
    driver.send({"t": 20, "mode": "eco"})
    explanation = engine.dry_run(DEVICE, driver.rules[1], {"t": 40}, ms(1))
    assert explanation.holds
    assert [(each.actual, each.holds) for each in explanation.conditions] == [(40, True), ("eco", True)]
    assert not engine.dry_run(DEVICE, driver.rules[1], {}, ms(1)).holds
    assert engine.latest(DEVICE)[0].value == 20


@pytest.mark.parametrize(
    ("comparator", "value"),
    [(">", "eco"), ("silent", 0), ("silent", 1e12), ("silent", "x"), ("<", float("nan")), ("<", float("inf")), ("==", "x" * 257)],
)
def test_a_value_that_does_not_fit_the_comparator_is_rejected(comparator: str, value: float | str) -> None:
    with pytest.raises(ValidationFailed):
        RuleCondition("t", Comparator(comparator), value)
