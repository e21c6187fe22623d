"""Both engines: timers run in the time of the messages, so what has waited is evaluated as if it had been read when it arrived."""

from __future__ import annotations

import pytest

from adapters.engine.native import NativeEngine
from domain.rules.ports import BatchResult, TelemetryEngine
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support.engine import DEVICE, EngineDriver, ms, rule

HOT = ("hot", "==", 1.0)
QUIET = ("beat", "silent", 8)


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    return request.param()


def fired(result: BatchResult) -> list[tuple[int, int]]:
    return [(each.rule_no, each.at_ms) for each in result.rule_firings]


def test_a_wait_that_ended_between_two_messages_fires_at_its_end(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3))
    assert fired(driver.send({"hot": 1}, 0)) == []
    assert fired(driver.send({"hot": 0}, 10)) == [(1, ms(3))]
    assert not driver.state().matched
    assert driver.state().last_fired_ms == ms(3)


def test_a_wait_that_a_message_ended_before_its_time_does_not_fire(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3))
    driver.send({"hot": 1}, 0)
    assert fired(driver.send({"hot": 0}, 2.9)) == []
    assert engine.next_timer_ms() is None


def test_a_timer_of_the_same_millisecond_is_judged_with_the_message(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3))
    driver.send({"hot": 1}, 0)
    assert fired(driver.send({"hot": 0}, 3)) == []


def test_all_of_one_batch_is_judged_by_its_arrivals(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3), rule(QUIET, no=2, command="ON"))
    driver.send({"hot": 0, "beat": 1}, 0)
    backlog = [(10, b'{"hot": 1}'), (11, b'{"beat": 1}'), (17, b'{"beat": 1}'), (20, b'{"hot": 0}')]
    batch = PythonTelemetryBatch.of((DEVICE, ms(at_s), payload) for at_s, payload in backlog)
    assert fired(engine.ingest(batch, ms(600))) == [(2, ms(8)), (1, ms(13))]
    assert engine.next_timer_ms() == ms(25)


def test_a_silence_that_a_waiting_message_broke_does_not_fire(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(QUIET))
    for at_s in (0, 7, 14):
        assert fired(driver.send({"beat": 1}, at_s)) == []
    assert fired(driver.tick(21.9)) == []
    assert fired(driver.tick(22)) == [(1, ms(22))]


@pytest.mark.parametrize(
    ("spoke_at_s", "expected_s"), [(100.05, 100), (99.9, None)], ids=["spoke after it", "had spoken before, and waited"]
)
def test_a_silence_from_before_the_rule_was_made_does_not_fire_at_its_own_time(
    engine: TelemetryEngine, spoke_at_s: float, expected_s: float | None
) -> None:
    driver = EngineDriver(engine)
    driver.send({"beat": 1}, 0)
    driver.set_rules(rule(QUIET, since_ms=ms(100)))
    assert fired(driver.send({"beat": 1}, spoke_at_s)) == ([] if expected_s is None else [(1, ms(expected_s))])
    assert engine.next_timer_ms() == ms(spoke_at_s + 8)


def test_the_time_of_a_rule_moves_with_the_clock(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send({"beat": 1}, 0)
    driver.set_rules(rule(QUIET, since_ms=ms(100)))
    engine.shift_clock(-50_000, ms(50))
    assert fired(driver.send({"beat": 1}, 60)) == [(1, ms(50))]


def test_a_silence_with_a_wait_fires_when_both_were_over(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(QUIET, for_seconds=5))
    driver.send({"beat": 1}, 0)
    assert fired(driver.send({"beat": 1}, 60)) == [(1, ms(13))]


def test_a_cooldown_is_judged_at_the_time_of_the_timer(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3, cooldown_seconds=20))
    driver.send({"hot": 1}, 0)
    assert fired(driver.send({"hot": 0}, 10)) == [(1, ms(3))]
    driver.send({"hot": 1}, 15)
    result = driver.send({"hot": 0}, 40)
    assert (fired(result), [each.at_ms for each in result.rule_suppressions]) == ([], [ms(18)])
    driver.send({"hot": 1}, 50)
    assert fired(driver.send({"hot": 0}, 60)) == [(1, ms(53))]


def test_two_timers_of_one_instant_compete_and_two_of_different_ones_do_not(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3), rule(HOT, no=2, for_seconds=3), rule(HOT, no=3, for_seconds=4))
    driver.send({"hot": 1}, 0)
    result = driver.send({"hot": 0}, 10)
    assert fired(result) == [(1, ms(3)), (3, ms(4))]
    assert [(each.rule_no, each.winner_no) for each in result.rule_suppressions] == [(2, 1)]


def test_timers_of_other_devices_stay_where_they_are(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3))
    driver.send({"hot": 1}, 0)
    assert fired(driver.send({"hot": 1}, 10, device_no=DEVICE + 1)) == []
    assert engine.next_timer_ms() == ms(3)


@pytest.mark.parametrize("payload", ['{"ts": 1789999999000, "m": {"hot": 1}}', "{", '{"other": 1}'])
def test_any_message_of_the_device_tells_the_time(engine: TelemetryEngine, payload: str) -> None:
    """A late one, one that cannot be used, and one with other metrics too."""
    driver = EngineDriver(engine, rule(HOT, for_seconds=3))
    driver.send({"hot": 1}, 0)
    assert [each for result in driver.send_batches(payload, 10) for each in fired(result)] == [(1, ms(3))]


def test_after_a_restart_a_wait_ends_when_it_would_have(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=3))
    driver.send({"hot": 1}, 0)
    again = EngineDriver(restarted(engine, driver), driver.rules[1])
    assert fired(again.send({"hot": 0}, 10)) == [(1, ms(3))]


def test_after_a_restart_what_was_judged_before_is_not_judged_again(engine: TelemetryEngine) -> None:
    """Both silences were over, and the rule had fired, before the first message of the log."""
    both = rule(("beat", "silent", 8), ("hot", "silent", 8))
    cleared = rule(("hot", ">=", 0.0), no=2, clear=[("beat", "silent", 8), ("hot", "silent", 8)])
    driver = EngineDriver(engine, both, cleared)
    driver.send({"beat": 1}, 0)
    driver.send({"hot": 0}, 4)
    for at_s in (8, 12):
        driver.tick(at_s)
    assert (driver.state(1).matched, driver.state(2).matched) == (True, False)
    again = EngineDriver(restarted(engine, driver), *driver.rules.values())
    results = again.send_batches({"other": 1}, 30)
    assert ([each for result in results for each in fired(result)], again.state(1).matched, again.state(2).matched) == (
        [],
        True,
        False,
    )


def test_while_a_device_could_not_be_heard_its_messages_of_that_time_move_its_timers(engine: TelemetryEngine) -> None:
    """They waited in the log of a partition whose owner was gone. What comes after the last of them was not heard."""
    driver = EngineDriver(engine, rule(HOT, for_seconds=3), rule(QUIET, no=2, command="ON"))
    driver.send({"hot": 0, "beat": 1}, 0)
    engine.deafen(ms(1), ms(100))
    driver.send({"hot": 1, "beat": 1}, 5)
    assert engine.next_timer_ms() is None
    assert fired(driver.send({"hot": 0}, 10)) == [(1, ms(8))]
    assert fired(driver.tick(99)) == []
    driver.send({"hot": 0}, 200)
    assert engine.next_timer_ms() == ms(203)  # `beat` was silent for five seconds that count
    assert fired(driver.tick(203)) == [(2, ms(203))]


def restarted(engine: TelemetryEngine, driver: EngineDriver) -> TelemetryEngine:
    made = type(engine)()
    made.add_metric_names(driver.numbers.rows)
    for device_no, _, latest in engine.checkpoint(10):
        made.restore(device_no, latest)
    return made
