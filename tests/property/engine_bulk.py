"""Generates a million small cases for the engine: each is a rule set and a message sequence on its own device.

A chunk of 500 cases shares a pair of engines and runs through them step by step in common batches, so that calls are cheap and a
comparison compares two lists. Time advances between steps, and sometimes goes back; the service's clock may be set by an hour, with
messages still on their way; devices have clocks of their own, some of them wrong; an engine may be rebuilt between steps from what a
database would contain. A chunk depends on one number only, so that number reproduces a failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from domain.rules.model import Comparator, EngineRule, MatchMode, RuleCondition, RuleState
from domain.rules.ports import BatchResult, RawTelemetryBatch, TelemetryEngine
from domain.telemetry.reference_engine import PythonTelemetryBatch
from support.engine import MetricNumbers

CHUNK = 500
START_MS = 1_790_000_000_000
PARTS = (
    "rule_transitions",
    "rule_firings",
    "rule_suppressions",
    "rows",
    "consumed",
    "unknown_metric_names",
    "new_metrics",
    "faults",
    "clocks_ahead",
)
NAMES = ("t", "h", "mode", "on")
NUMERIC = (
    Comparator.GREATER,
    Comparator.GREATER_EQUAL,
    Comparator.LESS,
    Comparator.LESS_EQUAL,
    Comparator.EQUAL,
    Comparator.NOT_EQUAL,
)
LIMITS = (20.0, 20.5, 0.0, -0.0, 1.0, float(2**53), float(2**53 + 2), -7.25, 1e308, 5e-324)
NUMBERS = ("20", "20.5", "20.4999", "-7.25", "0", "-0.0", "1", "1e0", "19", "21", "9007199254740993", "9007199254740992", "1e308")
UNUSUAL_LITERALS = (
    "NaN",
    "Infinity",
    "-1e400",
    "null",
    "[1]",
    '{"x":1}',
    "true",
    "false",
    '"eco"',
    '"heat"',
    '"20"',
    '""',
    '"\\u0065co"',
)
TEXTS = ("eco", "heat", "20", "")
OFFSETS_MS = (0, 0, -1_000, -125_000, -3_600_000, 90_000, 121_000, 3_600_000, 90_000_000)
"""Of a device's clock."""
INVALID_PAYLOADS = (
    b"",
    b"{",
    b'{"t":01}',
    b"[]",
    b'{"t":1,}',
    b'{"t":"\\ud800"}',
    b"\xff",
    b'[{"t":21},{"t":19}]',
    b'{"t":1,"t":30}',
)


@dataclass(frozen=True)
class Case:
    """`payloads` has one entry per step; None where the device sends nothing."""

    rules: tuple[EngineRule, ...]
    payloads: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Step:
    advance_ms: int
    ticks: bool
    restarts: bool
    clock_step_ms: int = 0
    deaf_ms: int = 0
    """Since when nobody could be heard, before this step."""
    hears_all: bool = False


@dataclass(frozen=True)
class Chunk:
    """Cases by device number, and the steps that they share."""

    steps: tuple[Step, ...]
    cases: dict[int, Case]

    def only(self, device_no: int, case: Case | None = None) -> Chunk:
        return Chunk(self.steps, {device_no: case or self.cases[device_no]})


def chunk(number: int) -> Chunk:
    """The chunk of this number; always the same one."""
    chance = random.Random(number)
    count = chance.choice((1, 2, 2, 3, 3, 4))
    steps = tuple(
        Step(
            chance.choice((0, 400, 1_000, 2_000, 5_000, 125_000, -1_500)),
            chance.random() < 0.6,
            chance.random() < 0.12,
            chance.choice((0, 0, 0, 0, 3_600_000, -3_600_000)),
            chance.choice((0, 0, 0, 0, 1_500, 3_600_000)),
            chance.random() < 0.3,
        )
        for _ in range(count)
    )
    return Chunk(steps, {device_no: _case(chance, device_no, count) for device_no in range(1, CHUNK + 1)})


def _case(chance: random.Random, device_no: int, count: int) -> Case:
    metrics = NAMES[: chance.choice((1, 2, 2, 4))]
    rules = tuple(_rule(chance, device_no * 4 + place, metrics) for place in range(chance.choice((1, 1, 1, 2, 3))))
    return Case(rules, tuple(_payload(chance, metrics) for _ in range(count)))


def _rule(chance: random.Random, rule_no: int, metrics: Sequence[str]) -> EngineRule:
    conditions = tuple(_condition(chance, metrics) for _ in range(chance.choice((1, 1, 2, 3))))
    command = chance.choice(("ON", "OFF", "FAN"))
    match = MatchMode.ANY if chance.random() < 0.3 else MatchMode.ALL
    if chance.random() < 0.5:
        return EngineRule(rule_no, conditions, command, match, priority=chance.choice((100, 50)))
    return EngineRule(
        rule_no,
        conditions,
        command,
        match,
        clear_conditions=(_condition(chance, metrics),) if chance.random() < 0.4 else (),
        for_seconds=chance.choice((0, 0, 1, 2)),
        cooldown_seconds=chance.choice((0, 0, 3)),
        state=_state(chance),
        enabled=chance.random() < 0.95,
    )


def _state(chance: random.Random) -> RuleState:
    dice = chance.random()
    if dice < 0.6:
        return RuleState()
    if dice < 0.8:
        return RuleState(matched=True, last_fired_ms=START_MS - 1_000)
    return RuleState(False, START_MS - 500, chance.choice((None, START_MS - 2_000)))


def _condition(chance: random.Random, metrics: Sequence[str]) -> RuleCondition:
    metric, dice = chance.choice(metrics), chance.random()
    if dice < 0.12:
        return RuleCondition(metric, Comparator.SILENT, chance.choice((1, 2.5)))
    if dice < 0.25:
        return RuleCondition(metric, chance.choice((Comparator.EQUAL, Comparator.NOT_EQUAL)), chance.choice(TEXTS))
    return RuleCondition(metric, chance.choice(NUMERIC), chance.choice(LIMITS))


def _payload(chance: random.Random, metrics: Sequence[str]) -> bytes | None:
    dice = chance.random()
    if dice < 0.12:
        return None
    if dice < 0.15:
        return chance.choice(INVALID_PAYLOADS)
    named = metrics if dice < 0.7 else metrics[: chance.randint(1, len(metrics))]
    literals = UNUSUAL_LITERALS if dice > 0.85 else NUMBERS
    body = ",".join([f'"{name}":{chance.choice(literals)}' for name in named])
    ts = f'"ts":{START_MS + chance.choice(OFFSETS_MS)},' if chance.random() < 0.3 else ""
    return (f'{{{ts}"m":{{{body}}}}}' if dice < 0.3 else f"{{{ts}{body}}}").encode()


class Run:
    """Runs one engine through a chunk, with what a database would contain."""

    def __init__(
        self, make: Callable[[], TelemetryEngine], batch: Callable[[list[tuple[int, int, bytes]]], RawTelemetryBatch]
    ) -> None:
        self._make = make
        self._batch = batch
        self._numbers = MetricNumbers()
        self._latest: dict[int, bytes] = {}

    def results(self, chunk: Chunk) -> list[object]:
        """Everything that the engine returns, in order."""
        engine = self._make()
        rules = {rule.rule_no: rule for case in chunk.cases.values() for rule in case.rules}
        for device_no, case in chunk.cases.items():
            engine.set_rules(device_no, case.rules)
        results: list[object] = []
        now_ms = START_MS
        for place, step in enumerate(chunk.steps):
            now_ms += step.advance_ms
            stamped_ms = now_ms
            if step.clock_step_ms:
                now_ms += step.clock_step_ms
                results += self._record(engine.shift_clock(step.clock_step_ms, now_ms), rules)
            if step.deaf_ms:
                engine.deafen(now_ms - step.deaf_ms, now_ms)
            if step.hears_all:
                results += self._record(engine.hear_all(now_ms), rules)
            sent = [
                (device_no, (stamped_ms if device_no % 5 == 0 else now_ms) - device_no % 3, payload)
                for device_no, case in chunk.cases.items()
                if (payload := case.payloads[place]) is not None
            ]
            for result in self._numbers.ingest(engine, self._batch(sent), now_ms):
                results += self._record(result, rules)
            if step.ticks:
                now_ms += 1_000
                results += self._record(engine.tick(now_ms), rules)
            if step.restarts:
                engine = self._restart(engine, chunk, rules, now_ms)
            results += [engine.next_timer_ms(), engine.clock_offsets(list(chunk.cases))]
        results += self._record(engine.tick(now_ms + 10_000), rules)
        results.append(repr(sorted(engine.checkpoint(CHUNK))))
        return results

    def _record(self, result: BatchResult, rules: dict[int, EngineRule]) -> list[object]:
        parts = [getattr(result, part) for part in PARTS]
        for transition in parts[0]:
            rules[transition.rule_no] = replace(rules[transition.rule_no], state=transition.state)
        return parts

    def _restart(self, engine: TelemetryEngine, chunk: Chunk, rules: dict[int, EngineRule], now_ms: int) -> TelemetryEngine:
        self._latest |= {device_no: latest for device_no, _, latest in engine.checkpoint(CHUNK)}
        fresh = self._make()
        fresh.add_metric_names(self._numbers.rows)
        for device_no, latest in self._latest.items():
            fresh.restore(device_no, latest, now_ms)
        for device_no, case in chunk.cases.items():
            fresh.set_rules(device_no, [rules[rule.rule_no] for rule in case.rules])
        return fresh


Engines = tuple[Callable[[], TelemetryEngine], Callable[[], TelemetryEngine]]


def engines_differ(chunk: Chunk, engines: Engines, batch: Callable[[list[tuple[int, int, bytes]]], RawTelemetryBatch]) -> bool:
    native, reference = engines
    return Run(native, batch).results(chunk) != Run(reference, PythonTelemetryBatch.of).results(chunk)


def reduce_failure(chunk: Chunk, fails: Callable[[Chunk], bool]) -> Chunk:
    """The smallest part of a chunk that still fails: one case without a superfluous rule or message."""
    alone = next((chunk.only(device_no) for device_no in chunk.cases if fails(chunk.only(device_no))), chunk)
    if len(alone.cases) > 1:
        return alone
    ((device_no, case),) = alone.cases.items()
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller_case in _smaller(case):
            if fails(alone.only(device_no, smaller_case)):
                case, is_smaller = smaller_case, True
                break
    return alone.only(device_no, case)


def _smaller(case: Case) -> list[Case]:
    fewer = [replace(case, rules=case.rules[:i] + case.rules[i + 1 :]) for i in range(len(case.rules))]
    quiet = [
        replace(case, payloads=(*case.payloads[:i], None, *case.payloads[i + 1 :]))
        for i, payload in enumerate(case.payloads)
        if payload is not None
    ]
    return [*fewer, *quiet]
