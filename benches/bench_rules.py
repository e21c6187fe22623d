"""Telemetry messages per CPU second: JSON bytes → values → rules → transitions → fired rules, in batches of 256.

First, each implementation must fire the same rules as the reference engine for the same messages. About one message in 100 fires a
rule. `LATCHBOARD_BENCH_MILLION=1` adds the fleet of a million devices (about 1 GiB).
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import psutil
import pytest

from adapters.engine import _native
from adapters.engine.native import NativeEngine
from domain.rules.model import Comparator, EngineRule, RuleCondition
from domain.telemetry.packing import CheckpointMetricValue, pack_latest
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support import other_rule_libraries

METRICS = ("temperature", "humidity", "pressure", "voltage", "rssi")
BATCH = 256
NOW_MS = 1_790_000_000_000
SIDES = (Comparator.GREATER, Comparator.GREATER_EQUAL, Comparator.LESS, Comparator.LESS_EQUAL)
COMMANDS = ("ON", "TOGGLE", "FAN", "ALARM", "VALVE")
LEVELS = 61
"""Number of distinct thresholds, so that libraries that compile each rule can share compilations. It does not help our engine."""
Message = tuple[int, int, bytes]
Cpu = Callable[[Callable[[], object], int], float]
FLEETS = [(1_000, 5), (1_000, 20), (100_000, 5)]
if os.environ.get("LATCHBOARD_BENCH_MILLION"):
    FLEETS.append((1_000_000, 5))


def rules_of(device_no: int, count: int) -> list[EngineRule]:
    chance = random.Random(device_no)
    return [_rule(chance, (device_no - 1) * count + place + 1, place) for place in range(count)]


def _rule(chance: random.Random, rule_no: int, place: int) -> EngineRule:
    conditions = tuple(_condition(chance, METRICS[(place + k) % 5], SIDES[(place + k) % 4]) for k in range(2))
    return EngineRule(rule_no, conditions, COMMANDS[place % 5])


def _condition(chance: random.Random, metric: str, side: Comparator) -> RuleCondition:
    away = 11 + chance.randrange(LEVELS) / 10
    return RuleCondition(metric, side, 60 + away if ">" in side.value else 60 - away)


@lru_cache(maxsize=2)
def messages(devices: int, count: int) -> list[Message]:
    """About 95 bytes each; values are normal around 60 with deviation 8."""
    chance = random.Random(1)
    return [(chance.randint(1, devices), NOW_MS, _payload(chance)) for _ in range(count)]


def _payload(chance: random.Random) -> bytes:
    numbers = [f"{chance.gauss(60, 8):.{digits}f}" for digits in (1, 1, 2, 3, 2)]
    body = ", ".join(f'"{name}": {number}' for name, number in zip(METRICS, numbers, strict=True))
    return ("{" + body + "}").encode()


def batches(of: Sequence[Message]) -> Iterator[list[Message]]:
    for begin in range(0, len(of), BATCH):
        yield list(of[begin : begin + BATCH])


def create_native_engine(devices: int, rules: int) -> NativeEngine:
    """An engine whose devices have reported every metric, as the API requires before a rule may name one."""
    engine = NativeEngine()
    engine.add_metric_names(list(enumerate(METRICS, 1)))
    latest = pack_latest(
        NOW_MS - 1, [CheckpointMetricValue(number, 60.0, NOW_MS - 1, NOW_MS - 1, None) for number in range(1, 6)]
    )
    for device_no in range(1, devices + 1):
        engine.restore(device_no, latest)
        engine.set_rules(device_no, rules_of(device_no, rules))
    return engine


def fired_by_reference(devices: int, rules: int, of: Sequence[Message]) -> list[int]:
    engine = ReferenceTelemetryEngine()
    engine.add_metric_names(list(enumerate(METRICS, 1)))
    for device_no in {device_no for device_no, _, _ in of}:
        engine.set_rules(device_no, rules_of(device_no, rules))
    return [fired.rule_no for fired in engine.ingest(PythonTelemetryBatch.of(of)).rule_firings]


def verified_engine(devices: int, rules: int, count: int) -> NativeEngine:
    engine = create_native_engine(devices, rules)
    sample = messages(devices, count)[:4_096]
    fired = [each.rule_no for batch in batches(sample) for each in engine.ingest(_native.RawTelemetryBatch(batch)).rule_firings]
    assert fired == fired_by_reference(devices, rules, sample)
    return engine


@pytest.mark.parametrize(("devices", "rules"), FLEETS)
def test_from_a_native_batch_to_fired_rules(cpu: Cpu, devices: int, rules: int) -> None:
    """The path of the embedded broker: the batch is native already."""
    count = 200_000
    before = psutil.Process().memory_info().rss
    engine = verified_engine(devices, rules, count)
    grown = psutil.Process().memory_info().rss - before
    print(f"\n  about {grown / devices:.0f} bytes a device (process growth, this bench's own objects included)")
    native = [_native.RawTelemetryBatch(batch) for batch in batches(messages(devices, count))]
    cpu(lambda: [len(engine.ingest(batch).rule_firings) for batch in native], count)


@pytest.mark.parametrize(("devices", "rules"), FLEETS)
def test_from_python_tuples_to_fired_rules(cpu: Cpu, devices: int, rules: int) -> None:
    """The path of an external broker: the batch is built from Python tuples."""
    count = 200_000
    engine = verified_engine(devices, rules, count)
    parts = list(batches(messages(devices, count)))
    cpu(lambda: [len(engine.ingest(_native.RawTelemetryBatch(batch)).rule_firings) for batch in parts], count)


def test_from_a_native_batch_to_rows_for_the_database(cpu: Cpu) -> None:
    """Everything that the service reads from a batch result."""
    count = 200_000
    engine = verified_engine(1_000, 5, count)
    native = [_native.RawTelemetryBatch(batch) for batch in batches(messages(1_000, count))]

    def work() -> None:
        for batch in native:
            result = engine.ingest(batch)
            assert len(result.rows) == len(batch)
            _ = (result.rule_transitions, result.rule_firings, result.last_seen, result.new_metrics, result.faults)

    cpu(work, count)


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "envelope": lambda body: b'{"ts": 1790000000000, "m": ' + body + b"}",
    "with text": lambda body: body[:-1] + b', "mode": "eco"}',
    "with units": lambda body: b'{"m": ' + body + b', "u": {"temperature": "celsius"}}',
    "array of two": lambda body: b"[" + body + b"," + body + b"]",
}


@pytest.mark.parametrize("form", list(FORMS))
def test_other_payload_forms(cpu: Cpu, form: str) -> None:
    count = 50_000
    engine = create_native_engine(1_000, 5)
    sent = [(device_no, at_ms, FORMS[form](body)) for device_no, at_ms, body in messages(1_000, count)]
    native = [_native.RawTelemetryBatch(batch) for batch in batches(sent)]
    cpu(lambda: [len(engine.ingest(batch).rule_firings) for batch in native], count)


def test_the_reference_engine(cpu: Cpu) -> None:
    sample = messages(1_000, 200_000)[:4_096]
    engine = ReferenceTelemetryEngine()
    engine.add_metric_names(list(enumerate(METRICS, 1)))
    for device_no in range(1, 1_001):
        engine.set_rules(device_no, rules_of(device_no, 5))
    parts = [PythonTelemetryBatch.of(batch) for batch in batches(sample)]
    cpu(lambda: [len(engine.ingest(batch).rule_firings) for batch in parts], len(sample))


PEERS = {
    "generated Python": other_rule_libraries.generated_python,
    "zen-engine": other_rule_libraries.zen_engine,
    "rule-engine": other_rule_libraries.rule_engine,
    "common-expression-language": other_rule_libraries.cel,
    "datalogic-py": other_rule_libraries.datalogic,
}


@pytest.mark.parametrize("peer", [*PEERS, "numpy"])
def test_a_peer(cpu: Cpu, peer: str) -> None:
    sample = messages(1_000, 200_000)[:10_240]
    fleet = {device_no: rules_of(device_no, 5) for device_no in range(1, 1_001)}

    def make() -> other_rule_libraries.Ingest:
        if peer == "numpy":
            return other_rule_libraries.numpy_planes(fleet, METRICS)
        return other_rule_libraries.interpreted(fleet, PEERS[peer])

    ingest = make()
    fired = [rule_no for device_no, _, body in sample[:4_096] for rule_no in ingest(device_no, body)]
    assert _by_rule(fired) == _by_rule(fired_by_reference(1_000, 5, sample[:4_096]))
    cpu(lambda: [ingest(device_no, body) for device_no, _, body in sample], len(sample))


def _by_rule(fired: Sequence[int]) -> dict[int, int]:
    """How often each rule fired. The other libraries do not handle contradicting commands, and the commands here do not contradict."""
    counts: dict[int, int] = defaultdict(int)
    for rule_no in fired:
        counts[rule_no] += 1
    return counts
