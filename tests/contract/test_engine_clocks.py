"""Both engines: no timestamp of a device and no step of the service's clock switches rules off, or lets them fire early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.engine.native import NativeEngine
from domain.kernel.clock import to_iso
from domain.rules.model import RuleState
from domain.rules.ports import TelemetryEngine
from domain.telemetry import packing
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support.engine import DEVICE, EngineDriver, ingest_batch, ms, rule

TIMES = json.loads((Path(__file__).parents[1] / "vectors" / "times.json").read_text())
HOT = ("t", ">", 30.0)
HOUR_S = 3_600


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    return request.param()


def at(ts_s: float, value: float) -> dict[str, Any]:
    return {"ts": ms(ts_s), "m": {"t": value}}


def set_clock(engine: TelemetryEngine, step_s: float, now_s: float) -> list[RuleState]:
    """`now_s`: what the clock shows after it was set."""
    return [each.state for each in engine.shift_clock(int(step_s * 1000), ms(now_s)).rule_transitions]


@pytest.mark.parametrize("vector", TIMES, ids=lambda vector: vector["name"])
def test_messages_are_late_or_not_as_in_the_vectors(engine: TelemetryEngine, vector: dict[str, Any]) -> None:
    """Each message: `at` its arrival, `ts` what the device says, `drives` whether rules see it, `recordedAt` its stored time. The
    latest value is the one with the greatest time, whether rules see it or not."""
    driver, stored = EngineDriver(engine), []
    for value, message in enumerate(vector["messages"], start=1):
        ts = {} if message.get("ts") is None else {"ts": ms(message["ts"])}
        result = driver.send({**ts, "m": {"t": value}}, message["at"])
        rows = engine.unpack_readings([(row[1], row[3]) for row in result.rows])
        assert [(row[0], row[4]) for row in rows] == [
            (ms(message["recordedAt"]), None if "reportedAt" not in message else ms(message["reportedAt"]))
        ]
        assert engine.dry_run(DEVICE, rule(("t", "==", value)), {}, ms(message["at"])).holds is message["drives"], message
        stored.append((ms(message["recordedAt"]), value))
        assert (engine.latest(DEVICE)[0].ts_ms, engine.latest(DEVICE)[0].value) == max(stored), message
        assert [offset for _, offset in result.clocks_ahead] == [1000 * each for each in message.get("ahead", [])]


def test_one_timestamp_of_the_future_keeps_no_rule_from_firing(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT))
    assert driver.fired(at(10 * HOUR_S, 20), 0) == []
    assert driver.fired(at(10, 31), 10) == [1]
    assert driver.fired(at(119, 20), 20) == []
    assert driver.fired(at(30, 31), 30) == []  # late: the device said 119 s
    assert driver.fired(at(120, 31), 120) == [1]


@pytest.mark.parametrize("said", ["{s}", "{s}.0", "{s}e0", "{s}.5"])
def test_a_timestamp_of_ten_digits_is_in_seconds(engine: TelemetryEngine, said: str) -> None:
    driver, seconds = EngineDriver(engine, rule(HOT)), ms(-60) // 1000
    assert len(str(seconds)) == 10
    payload = '{"ts":' + said.format(s=seconds) + ',"m":{"t":31}}'
    for each in (payload, payload.replace('"m":{"t":31}', '"t":31'), f"[{payload}]"):
        assert [row[1] for row in driver.send(each).rows] == [seconds * 1000 + (500 if said.endswith(".5") else 0)]
    assert driver.send({"ts": seconds + 1, "t": 32}, 1).rows[0][1] == (seconds + 1) * 1000
    assert driver.fired({"ts": seconds - 10, "t": 20}, 2) == [], "a late upload"
    ahead = driver.send({"ts": seconds + 600, "t": 20}, 3)
    assert ahead.rows[0][1] == ms(3)
    assert [offset for _, offset in ahead.clocks_ahead] == [(seconds + 600) * 1000 - ms(3)]


@pytest.mark.parametrize("said", [999_999_999, 10_000_000_000, 99_999_999_999])
def test_a_timestamp_that_is_neither_seconds_nor_milliseconds_of_a_set_clock_is_not_believed(
    engine: TelemetryEngine, said: int
) -> None:
    assert EngineDriver(engine).send({"ts": said, "t": 1}, 5).rows[0][1] == ms(5)


@pytest.mark.parametrize("ahead_s", [25 * HOUR_S, 2 * 24 * HOUR_S, 56 * 365 * 24 * HOUR_S])
def test_a_timestamp_days_or_years_ahead_counts_as_the_arrival(engine: TelemetryEngine, ahead_s: int) -> None:
    driver = EngineDriver(engine, rule(HOT))
    result = driver.send(at(ahead_s, 31), 0)
    [(recorded_ms, *_, reported_ms)] = engine.unpack_readings([(row[1], row[3]) for row in result.rows])
    assert (recorded_ms, reported_ms) == (ms(0), ms(ahead_s))
    assert len(result.rule_firings) == 1
    assert (result.faults, result.clocks_ahead) == ([], [(DEVICE, ahead_s * 1_000)])


def test_the_latest_time_that_a_device_can_report_is_one_that_people_can_read(engine: TelemetryEngine) -> None:
    result = EngineDriver(engine).send({"ts": 1e300, "m": {"t": 20}}, 0)
    [reading] = engine.unpack_readings([(row[1], row[3]) for row in result.rows])
    assert to_iso(reading[4] or 0) == "9999-12-31T23:59:59.999Z"


def test_a_row_without_a_reported_time_has_no_extra_byte(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    [plain], [ahead] = driver.send(at(0, 20), 0).rows, driver.send(at(HOUR_S, 20), 0).rows
    assert ahead[3] == packing.pack_readings([(1, 20.0)], HOUR_S * 1_000)
    assert ahead[3][5:] == plain[3]


def test_the_offset_of_a_clock_is_known_for_devices_that_send_a_time(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send(at(-7, 20), 0)
    driver.send({"t": 20}, 0, device_no=8)
    assert engine.clock_offsets([8, DEVICE, 9]) == [(DEVICE, -7_000)]


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_for_seconds_neither_stretches_nor_ends_early_when_the_clock_is_set(engine: TelemetryEngine, step_s: int) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=10))
    driver.send({"t": 31}, 0)
    assert set_clock(engine, step_s, step_s + 4) == [RuleState(held_since_ms=ms(step_s))]
    assert engine.next_timer_ms() == ms(step_s + 10)
    assert driver.tick(step_s + 9.999).rule_firings == []
    assert [each.at_ms for each in driver.tick(step_s + 10).rule_firings] == [ms(step_s + 10)]


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_a_cooldown_lasts_as_long_when_the_clock_is_set(engine: TelemetryEngine, step_s: int) -> None:
    driver = EngineDriver(engine, rule(HOT, cooldown_seconds=10))
    driver.send({"t": 31}, 0)
    driver.send({"t": 20}, 1)
    assert set_clock(engine, step_s, step_s + 5) == [RuleState(last_fired_ms=ms(step_s))]
    assert driver.fired({"t": 31}, step_s + 9) == []
    driver.send({"t": 20}, step_s + 9)
    assert driver.fired({"t": 31}, step_s + 10) == [1]
    assert set_clock(engine, -step_s, 30) == []  # over: the time of the firing stays as it was shown


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_silence_lasts_as_long_when_the_clock_is_set(engine: TelemetryEngine, step_s: int) -> None:
    driver = EngineDriver(engine, rule(("t", "silent", 60)))
    driver.send({"t": 1}, 0)
    set_clock(engine, step_s, step_s + 30)
    assert engine.next_timer_ms() == ms(step_s + 60)
    assert driver.tick(step_s + 59).rule_firings == []
    assert [each.rule_no for each in driver.tick(step_s + 60).rule_firings] == [1]
    assert engine.checkpoint(9) != []  # with the arrivals as they are now


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("says_time", [False, True], ids=["no-ts", "ts"])
def test_a_clock_that_was_wrong_for_a_moment_switches_no_rule_off(engine: TelemetryEngine, step_s: int, says_time: bool) -> None:
    driver = EngineDriver(engine, rule(HOT))

    def message(true_s: float, value: float) -> dict[str, Any]:
        return at(true_s, value) if says_time else {"t": value}

    assert driver.fired(message(0, 20), 0) == []
    set_clock(engine, step_s, step_s + 10)
    assert driver.fired(message(11, 31), step_s + 11) == [1]
    assert driver.fired(message(12, 20), step_s + 12) == []
    set_clock(engine, -step_s, 20)
    assert driver.fired(message(21, 31), 21) == [1]


def test_a_device_that_says_the_time_again_after_the_clock_was_set_back_is_not_late(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(HOT))
    assert driver.fired({"t": 20}, HOUR_S) == []
    set_clock(engine, -HOUR_S, 10)
    assert driver.fired(at(11, 31), 11) == [1]


def test_readings_of_a_clock_ahead_are_replayed_when_there_are_no_others(engine: TelemetryEngine) -> None:
    engine.add_metric_names([(1, "t")])
    for ts_s, value in ((HOUR_S, 20.0), (HOUR_S + 1, 31.0)):
        engine.replay(DEVICE, ms(ts_s), packing.pack_readings([(1, value)]), ms(10))
    engine.set_rules(DEVICE, [rule(("t", "silent", 60))])
    assert (engine.latest(DEVICE)[0].value, engine.next_timer_ms()) == (31, ms(70))


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_a_message_on_its_way_while_the_clock_is_set_arrives_now(engine: TelemetryEngine, step_s: int) -> None:
    driver = EngineDriver(engine, rule(HOT, for_seconds=10))
    set_clock(engine, step_s, step_s + 5)
    batch = PythonTelemetryBatch.of([(DEVICE, ms(4), b'{"t": 31}')])
    result = ingest_batch(engine, batch, ms(step_s + 5))
    assert [each.held_since_ms for each in result.rule_transitions] == [ms(step_s + 5)]
    assert result.last_seen == [(DEVICE, ms(step_s + 5))]
    assert driver.tick(step_s + 14).rule_firings == []


def test_what_a_clock_ahead_has_stored_is_no_obstacle_after_a_restart(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(("t", "silent", 600)))
    driver.send({"t": 20}, HOUR_S)
    [(_, _, latest)] = engine.checkpoint(9)
    fresh = type(engine)()
    fresh.add_metric_names([(1, "t")])
    fresh.restore(DEVICE, latest, ms(10))
    fresh.replay(DEVICE, ms(HOUR_S + 1), packing.pack_readings([(1, 99.0)]), ms(10))
    restarted = EngineDriver(fresh, rule(HOT), rule(("t", "silent", 600), no=2))
    assert fresh.latest(DEVICE)[0].value == 20
    assert fresh.next_timer_ms() == ms(610)
    assert restarted.fired(at(11, 31), 11) == [1]


def test_a_replayed_reading_of_a_slow_clock_has_arrived_later_than_it_says(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(("t", "silent", 60)))
    driver.send(at(-HOUR_S, 20), 0)
    [(_, _, latest)] = engine.checkpoint(9)
    fresh = type(engine)()
    fresh.add_metric_names([(1, "t")])
    fresh.restore(DEVICE, latest, ms(20))
    fresh.replay(DEVICE, ms(10 - HOUR_S), packing.pack_readings([(1, 21.0)]), ms(20))
    fresh.set_rules(DEVICE, list(driver.rules.values()))
    assert fresh.next_timer_ms() == ms(70)
