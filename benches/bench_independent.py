"""The independent workload: the engine, its peers and a C program at the same messages, in interleaved rounds.

All must fire the same rules, message by message, and the first messages are also compared with the reference engine. Medians of
processor time; LATCHBOARD_BENCH_MILLION=1 adds the fleet of a million devices (about 2 GiB with the objects of this bench).
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

import psutil
import pytest

from adapters.engine import _native
from adapters.engine.native import NativeEngine
from c_lower_bound import lower_bound
from domain.kernel.columnar_records import read_column
from domain.telemetry.packing import CheckpointMetricValue, pack_latest
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from independent_fleet import METRICS, NOW_MS, Device, Message, device, devices, messages, payload
from other_rule_engines import PEERS

COUNT = 200_000
BATCH = 256
ROUNDS = 7
COMPARED = 4_096
MILLION = 1_000_000
FLEETS = [1_000, 100_000, *([MILLION] if os.environ.get("LATCHBOARD_BENCH_MILLION") else [])]
PRESENT_MS = itertools.count(NOW_MS)
Engine = TypeVar("Engine", NativeEngine, ReferenceTelemetryEngine)


def known_engine(fleet: Sequence[Device]) -> NativeEngine:
    """An engine whose devices have reported their metrics, as the API requires before a rule may name one."""
    engine = named_engine(NativeEngine())
    for each in fleet:
        engine.restore(each.number, checkpoint(each))
        engine.set_rules(each.number, each.rules)
    return engine


def named_engine(engine: Engine) -> Engine:
    engine.add_metric_names(list(enumerate(METRICS, 1)))
    return engine


def checkpoint(of: Device) -> bytes:
    return pack_latest(
        NOW_MS - 1, [CheckpointMetricValue(metric + 1, -100.0, NOW_MS - 1, NOW_MS - 1, None) for metric in of.metrics]
    )


def batches(given: Sequence[Message]) -> list[list[Message]]:
    return [list(given[begin : begin + BATCH]) for begin in range(0, len(given), BATCH)]


def fired_rules(engine: NativeEngine, batch: _native.RawTelemetryBatch) -> Sequence[int]:
    """Each batch arrives a millisecond after the one before: no device's time goes back between rounds."""
    return read_column(engine.ingest(batch, next(PRESENT_MS)).rule_firings, "rule_no")


def fired_by_reference(fleet: Sequence[Device], given: Sequence[Message]) -> list[int]:
    engine = named_engine(ReferenceTelemetryEngine())
    for device_no in {device_no for device_no, _, _ in given}:
        engine.set_rules(device_no, [rule for rule in fleet[device_no - 1].rules if rule.enabled])
    return [firing.rule_no for firing in engine.ingest(PythonTelemetryBatch.of(given), NOW_MS).rule_firings]


class Contest:
    """Contenders at the same messages, each with a call that gives the rules that fired."""

    def __init__(self, benchmark: Any, messages: int) -> None:
        self._benchmark = benchmark
        self._messages = messages
        self._contenders: dict[str, Callable[[], list[int]]] = {}
        self.oracle: list[int] | None = None

    def enter(self, name: str, run: Callable[[], list[int]]) -> None:
        """The first one is the oracle of the others."""
        fired = run()
        self.oracle = self.oracle or fired
        assert fired == self.oracle, name
        self._contenders[name] = run

    def run(self) -> dict[str, float]:
        """Nanoseconds of processor time for a message."""
        spent: dict[str, list[float]] = {name: [] for name in self._contenders}

        def one_round() -> None:
            for name, run in self._contenders.items():
                begin = time.process_time_ns()
                run()
                spent[name].append((time.process_time_ns() - begin) / self._messages)

        self._benchmark.pedantic(one_round, rounds=ROUNDS, warmup_rounds=1)
        return {name: statistics.median(each) for name, each in spent.items()}


def report(title: str, result: Mapping[str, float], of: str) -> None:
    print(f"\n  {title}")
    for name, each_ns in result.items():
        print(f"  {name:28} {1e9 / each_ns:>12,.0f} messages/s {each_ns:8.0f} ns {result[of] / each_ns:6.2f} of {of}")


@pytest.mark.parametrize("count", FLEETS)
def test_the_engine_and_others(benchmark: Any, count: int) -> None:
    gc.disable()
    fleet = list(devices(count))
    given = messages(count, COUNT)
    contest = Contest(benchmark, COUNT)
    contest.enter("C, without rows and checks", lower_bound(fleet, count)(given))
    native, tuples = known_engine(fleet), known_engine(fleet)
    parts = batches(given)
    of_broker = [_native.RawTelemetryBatch(part) for part in parts]
    contest.enter("batches of the broker", lambda: [no for part in of_broker for no in fired_rules(native, part)])
    contest.enter("Python tuples", lambda: [no for part in parts for no in fired_rules(tuples, _native.RawTelemetryBatch(part))])
    assert contest.oracle is not None
    by_reference = fired_by_reference(fleet, given[:COMPARED])
    assert contest.oracle[: len(by_reference)] == by_reference
    for name, peer in PEERS.items():
        if count == 1_000 or (count < MILLION and name == "generated Python"):
            run = peer(fleet)
            contest.enter(name, lambda run=run: run(given))  # type: ignore[misc]
    gc.collect()
    report(
        f"{count} devices x 5 rules, {len(contest.oracle) / COUNT:.2f} firings a message", contest.run(), "batches of the broker"
    )
    gc.enable()


def test_first_messages_of_new_devices(benchmark: Any) -> None:
    """All metrics are new for the device, none for the fleet; what is new is read."""
    chance = random.Random(3)
    parts = batches([(each.number, NOW_MS, payload(chance, each.metrics)) for each in devices(50_000)])
    native = [_native.RawTelemetryBatch(part) for part in parts]
    spent = []

    def one_round() -> None:
        engine = named_engine(NativeEngine())
        begin = time.process_time_ns()
        found = sum(len(engine.ingest(part).new_metrics) for part in native)
        spent.append((time.process_time_ns() - begin) / 50_000)
        assert found == 250_000

    benchmark.pedantic(one_round, rounds=ROUNDS, warmup_rounds=1)
    print(f"\n  {statistics.median(spent):.0f} ns for the first message of a device")


def test_bytes_of_a_device(benchmark: Any) -> None:
    """In a process of its own, which has no free memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        grown = benchmark.pedantic(lambda: pool.submit(bytes_of_a_device, 100_000).result(timeout=600))
    print(f"\n  {grown:.0f} bytes a device")


def bytes_of_a_device(count: int) -> float:
    """Process growth; every device has its rules and has sent a message."""
    chance = random.Random(4)
    engine = known_engine([device(count + 1)])
    before = psutil.Process().memory_info().rss
    for each in devices(count):
        engine.restore(each.number, checkpoint(each))
        engine.set_rules(each.number, each.rules)
        engine.ingest(_native.RawTelemetryBatch([(each.number, NOW_MS, payload(chance, each.metrics))]))
    grown: int = psutil.Process().memory_info().rss - before
    return grown / count
