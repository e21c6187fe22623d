"""Both engines parse payloads and keep values alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.engine import native
from adapters.engine.native import NativeEngine
from domain.rules.model import LatestReading
from domain.rules.ports import TelemetryEngine
from domain.telemetry import packing
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from support.engine import DEVICE, T0, EngineDriver, ms, rule

VECTORS = Path(__file__).parents[1] / "vectors"
PAYLOADS = json.loads((VECTORS / "payloads.json").read_text())
PACKED = json.loads((VECTORS / "packing.json").read_text())


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    return request.param()


@pytest.mark.parametrize("vector", PAYLOADS, ids=lambda each: each["name"])
def test_a_payload_is_parsed_as_in_the_vectors(engine: TelemetryEngine, vector: dict[str, Any]) -> None:
    result = EngineDriver(engine).send(vector["payload"])
    latest = engine.latest(DEVICE)
    assert {each.metric: each.value for each in latest} == vector["readings"]
    assert {each.metric: each.unit for each in latest if each.unit} == vector.get("units", {})
    assert {code: count for _, code, count in result.faults} == vector.get("faults", {})
    assert result.last_seen == [(DEVICE, T0)]


@pytest.mark.parametrize("vector", PACKED, ids=lambda each: each["packed"])
def test_readings_are_packed_as_in_the_vectors(engine: TelemetryEngine, vector: dict[str, Any]) -> None:
    numbers = [number for number, _ in vector["readings"]]
    engine.add_metric_names([(number, f"m{number}") for number in numbers])
    payload = {f"m{number}": value for number, value in vector["readings"]}
    row = EngineDriver(engine).send(payload).rows[0]
    assert row[3].hex() == vector["packed"]
    assert row[2] == packing.row_digest(row[3])
    expected = [(5, number, *packing.value_columns(value), None) for number, value in vector["readings"]]
    assert engine.unpack_readings([(5, row[3])]) == expected
    assert engine.unpack_readings([(5, row[3])], numbers[0]) == expected[:1]


@pytest.mark.parametrize("broken", ["0d", "0a00", "0b05c3", "0b01ff", "80", "0c" + "ff" * 11])
def test_bytes_that_are_no_row_are_rejected(engine: TelemetryEngine, broken: str) -> None:
    engine.add_metric_names([(1, "t")])
    with pytest.raises(ValueError):
        engine.unpack_readings([(0, bytes.fromhex(broken))])
    with pytest.raises(ValueError):
        engine.replay(DEVICE, 0, bytes.fromhex(broken))


def test_a_redelivered_message_gives_the_same_row(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    first, again = (driver.send({"ts": T0, "m": {"t": 21.4}}, at_s).rows for at_s in (0, 9))
    assert first == again


def test_metric_numbers_belong_to_the_fleet(engine: TelemetryEngine) -> None:
    engine.add_metric_names([(3, "t"), (9, "h"), (10, "new")])
    driver = EngineDriver(engine)
    assert driver.send({"h": 1, "new": 2}).new_metrics == [(DEVICE, 9, "h", None), (DEVICE, 10, "new", None)]
    assert driver.send({"new": 2, "t": 1}, device_no=8).new_metrics == [(8, 10, "new", None), (8, 3, "t", None)]


def test_an_engine_takes_no_message_with_a_name_that_has_no_number(engine: TelemetryEngine) -> None:
    engine.add_metric_names([(3, "t")])
    engine.set_rules(DEVICE, [rule(("t", ">", 30))])
    payloads = [b'{"t": 20}', b'[{"t": 31}, {"b": 1, "a": 2}]', b"broken", b'{"c": 1, "a": 1}']
    batch = native.make_batch([(DEVICE, T0 + index, payload) for index, payload in enumerate(payloads)])
    before = engine.ingest(batch)
    assert (before.consumed, before.unknown_metric_names) == (1, ["b", "a", "c"])
    assert (before.message_count, before.rule_firings, before.faults, before.last_seen) == (1, [], [], [(DEVICE, T0)])
    engine.add_metric_names([(7, "b"), (5, "a")])
    between = engine.ingest(batch, None, before.consumed)
    assert (between.consumed, between.unknown_metric_names, len(between.rule_firings)) == (3, ["c"], 1)
    assert (between.message_count, between.faults) == (2, [(DEVICE, "MALFORMED", 1)])
    assert between.new_metrics == [(DEVICE, 7, "b", None), (DEVICE, 5, "a", None)]
    engine.add_metric_names([(6, "c")])
    rest = engine.ingest(batch, None, between.consumed)
    assert (rest.consumed, rest.unknown_metric_names, rest.new_metrics) == (4, [], [(DEVICE, 6, "c", None)])
    nothing = engine.ingest(batch, None, 9)
    assert (nothing.consumed, nothing.unknown_metric_names, nothing.rows) == (4, [], [])


def test_a_device_gets_no_names_beyond_its_limit_whatever_it_sends(engine: TelemetryEngine) -> None:
    payloads = [json.dumps({f"m{number}": 1 for number in range(first, first + 100)}).encode() for first in (0, 100, 200)]
    batch = native.make_batch([(DEVICE, T0, payload) for payload in payloads] + [(8, T0, b'{"m299": 1}')])
    result = engine.ingest(batch)
    assert (result.consumed, result.unknown_metric_names) == (0, [f"m{number}" for number in range(128)] + ["m299"])


def test_names_are_searched_in_a_limited_number_of_messages(engine: TelemetryEngine) -> None:
    batch = native.make_batch([(number, T0, b'{"m%d": 1}' % number) for number in range(3_000)])
    assert len(engine.ingest(batch).unknown_metric_names) == 2_048


def test_a_new_unit_is_reported_and_a_known_one_is_not(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    units = ({}, {"t": "C"}, {"t": "C"}, {"t": "K"})
    reported = [driver.send({"m": {"t": 1}, "u": unit}, i).new_metrics for i, unit in enumerate(units)]
    assert reported == [[(DEVICE, 1, "t", None)], [(DEVICE, 1, "t", "C")], [], [(DEVICE, 1, "t", "K")]]


def test_a_device_has_at_most_128_metrics(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    result = driver.send({f"m{i}": i for i in range(130)})
    assert (result.reading_count, result.faults) == (128, [(DEVICE, "TOO_MANY_METRICS", 2)])
    assert driver.send({"m0": 5, "one more": 1}, 1).reading_count == 1


def test_a_device_that_was_restored_with_more_metrics_may_send_them_all_at_once(engine: TelemetryEngine) -> None:
    names = [(number, f"m{number}") for number in range(1, 301)]
    engine.add_metric_names(names)
    known = [packing.CheckpointMetricValue(number, 1.5, T0, T0, None) for number, _ in names]
    engine.restore(DEVICE, packing.pack_latest(T0, known))
    values = {name: number + 0.25 for number, name in names}
    row = EngineDriver(engine).send(values, 1).rows[0]
    assert [value for _, _, value, _, _ in engine.unpack_readings([(0, row[3])])] == list(values.values())


def test_a_payload_over_64_kib_is_dropped_and_counted(engine: TelemetryEngine) -> None:
    assert EngineDriver(engine).send(b" " * 65_537).faults == [(DEVICE, "TOO_LARGE", 1)]


def test_names_have_at_most_64_characters_and_texts_256(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    assert driver.send({"é" * 64: "é" * 256}).reading_count == 1
    assert driver.send({"é" * 65: 1, "t": "é" * 257}).faults == [(DEVICE, "BAD_METRIC_NAME", 1), (DEVICE, "BAD_VALUE", 1)]


def test_a_fault_of_a_reading_names_the_first_metric(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    result = driver.send({"m": {"é" * 65: 1, "a": [1], "b": {}, "c\u0007d": 2, "e": 1}, "u": {"e": 7}})
    assert result.fault_metrics == [(DEVICE, "BAD_METRIC_NAME", "é" * 64), (DEVICE, "BAD_VALUE", "a")]
    assert driver.send(b"{").fault_metrics == []
    many = {f"m{number}": number for number in range(130)}
    assert driver.send(many, device_no=9).fault_metrics == [(9, "TOO_MANY_METRICS", "m128")]
    assert driver.send({"c\u0007d": 1}).fault_metrics == [(DEVICE, "BAD_METRIC_NAME", "cd")]
    assert driver.send({"m": {"e": 1}, "u": {"e": 7}}).fault_metrics == [(DEVICE, "BAD_VALUE", "e")]


def test_an_invalid_payload_of_one_device_does_not_affect_another(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(("t", ">", 30.0)))
    for garbage in (b"\x00\xff", b"[" * 5000, b'{"t":', b"{" * 64, b'"' * 999):
        assert driver.send(garbage, device_no=9).faults == [(9, "MALFORMED", 1)]
    assert driver.fired({"t": 31}) == [1]


def test_a_watched_device_returns_its_readings(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    engine.set_watched(DEVICE, True)
    watched = driver.send({"t": 1.5, "on": True, "mode": "eco", "u": {"t": "C"}}).watched_readings
    assert watched == [
        (DEVICE, T0, "t", 1.5, None, "C"),
        (DEVICE, T0, "on", 1.0, "true", None),
        (DEVICE, T0, "mode", None, "eco", None),
    ]
    engine.set_watched(DEVICE, False)
    assert driver.send({"t": 1}, 1).watched_readings == []


def test_a_checkpoint_restores_its_values(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine)
    driver.send({"t": 1.5, "on": True, "u": {"t": "C"}}, 0)
    driver.send({"mode": "eco"}, 5)
    (device_no, newest_ms, latest), *others = engine.checkpoint(10)
    assert (device_no, newest_ms, others) == (DEVICE, ms(5), [])
    assert engine.checkpoint(10) == []
    fresh = type(engine)()
    fresh.add_metric_names([(1, "t"), (2, "on"), (3, "mode")])
    fresh.restore(DEVICE, latest)
    assert fresh.latest(DEVICE) == engine.latest(DEVICE)
    assert fresh.latest(DEVICE)[0] == LatestReading("t", 1.5, "C", T0)


def test_replayed_rows_update_values_but_evaluate_no_rule(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(("t", ">", 30.0)))
    engine.add_metric_names([(1, "t")])
    engine.replay(DEVICE, ms(3), packing.pack_readings([(1, 31.0)]))
    engine.replay(DEVICE, ms(2), packing.pack_readings([(1, 5.0)]))
    assert engine.latest(DEVICE) == [LatestReading("t", 31.0, None, ms(3))]
    assert driver.tick(9).rule_firings == []
    assert driver.fired({"other": 1}, 4) == [1]


def test_unknown_metric_numbers_and_invalid_checkpoints_are_rejected(engine: TelemetryEngine) -> None:
    with pytest.raises(ValueError):
        engine.replay(DEVICE, 0, packing.pack_readings([(5, 1.0)]))
    with pytest.raises(ValueError):
        engine.restore(DEVICE, b"\x02\x00")
    with pytest.raises(ValueError):
        engine.restore(DEVICE, b"")


def test_a_removed_device_is_forgotten(engine: TelemetryEngine) -> None:
    driver = EngineDriver(engine, rule(("t", "silent", 5)))
    driver.send({"t": 1})
    engine.remove_device(DEVICE)
    assert (engine.latest(DEVICE), engine.next_timer_ms(), engine.checkpoint(5)) == ([], None, [])
    assert driver.tick(60).rule_firings == []


def test_last_seen_contains_each_device_once_with_its_newest_arrival(engine: TelemetryEngine) -> None:
    batch = native.make_batch([(1, T0, b"{}"), (2, T0 + 5, b"broken"), (1, T0 + 9, b"{}"), (1, T0 + 7, b"{}")])
    result = engine.ingest(batch)
    assert (result.last_seen, result.message_count, result.rows) == ([(1, T0 + 9), (2, T0 + 5)], 3, [])
