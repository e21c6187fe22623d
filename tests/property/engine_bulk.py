"""A million small cases for the engine: each is a rule set and a message sequence on a device of its own.

Five hundred cases share one pair of engines and go through them step by step in common batches, so that the calls cost little and
comparing them is comparing two lists. Time moves on between the steps, sometimes backwards; every engine may be rebuilt between two
steps from what a database would hold. A chunk is made from one number, so that number is all a failure needs to come back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from domain.rules.engine_port import BatchResult, TelemetryBatch, TelemetryEngine
from domain.rules.model import Comparator, MatchMode, RuleCondition, RuleSpec, RuleState
from domain.telemetry.engine.batch import InMemoryTelemetryBatch

CHUNK = 500
START_MS = 1_790_000_000_000
PARTS = ("edges", "fired", "suppressed", "rows", "new_names", "new_metrics", "faults")
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
NUMBERS = (
    "20",
    "20.5",
    "20.4999",
    "-7.25",
    "0",
    "-0.0",
    "1",
    "1e0",
    "19",
    "21",
    "9007199254740993",
    "9007199254740992",
    "1e308",
)
ODD = ("NaN", "Infinity", "-1e400", "null", "[1]", '{"x":1}', "true", "false", '"eco"', '"heat"', '"20"', '""', '"\\u0065co"')
TEXTS = ("eco", "heat", "20", "")
BROKEN = (b"", b"{", b'{"t":01}', b"[]", b'{"t":1,}', b'{"t":"\\ud800"}', b"\xff", b'[{"t":21},{"t":19}]', b'{"t":1,"t":30}')


@dataclass(frozen=True)
class Case:
    """`payloads` has one entry a step; None where the device is silent."""

    rules: tuple[RuleSpec, ...]
    payloads: tuple[bytes | None, ...]


@dataclass(frozen=True)
class Step:
    advance_ms: int
    ticks: bool
    restarts: bool


@dataclass(frozen=True)
class Chunk:
    """Cases by device number, and the steps that all of them take."""

    steps: tuple[Step, ...]
    cases: dict[int, Case]

    def only(self, device_no: int, case: Case | None = None) -> Chunk:
        return Chunk(self.steps, {device_no: case or self.cases[device_no]})


def chunk(number: int) -> Chunk:
    """The same for the same number."""
    chance = random.Random(number)
    count = chance.choice((1, 2, 2, 3, 3, 4))
    steps = tuple(
        Step(chance.choice((0, 400, 1_000, 2_000, 5_000, -1_500)), chance.random() < 0.6, chance.random() < 0.12)
        for _ in range(count)
    )
    return Chunk(steps, {device_no: _case(chance, device_no, count) for device_no in range(1, CHUNK + 1)})


def _case(chance: random.Random, device_no: int, count: int) -> Case:
    metrics = NAMES[: chance.choice((1, 2, 2, 4))]
    rules = tuple(_rule(chance, device_no * 4 + place, metrics) for place in range(chance.choice((1, 1, 1, 2, 3))))
    return Case(rules, tuple(_payload(chance, metrics) for _ in range(count)))


def _rule(chance: random.Random, rule_no: int, metrics: Sequence[str]) -> RuleSpec:
    conditions = tuple(_condition(chance, metrics) for _ in range(chance.choice((1, 1, 2, 3))))
    command = chance.choice(("ON", "OFF", "FAN"))
    match = MatchMode.ANY if chance.random() < 0.3 else MatchMode.ALL
    if chance.random() < 0.5:
        return RuleSpec(rule_no, conditions, command, match, priority=chance.choice((100, 50)))
    return RuleSpec(
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
        return chance.choice(BROKEN)
    named = metrics if dice < 0.7 else metrics[: chance.randint(1, len(metrics))]
    literals = ODD if dice > 0.85 else NUMBERS
    body = ",".join([f'"{name}":{chance.choice(literals)}' for name in named])
    return (f'{{"m":{{{body}}}}}' if dice < 0.3 else f"{{{body}}}").encode()


class Run:
    """One engine on its way through a chunk, with what a database would hold of it."""

    def __init__(
        self, make: Callable[[], TelemetryEngine], batch: Callable[[list[tuple[int, int, bytes]]], TelemetryBatch]
    ) -> None:
        self._make = make
        self._batch = batch
        self._names: list[tuple[int, str]] = []
        self._latest: dict[int, bytes] = {}

    def through(self, of: Chunk) -> list[object]:
        """All that the engine said, in order."""
        engine = self._make()
        rules = {rule.rule_no: rule for case in of.cases.values() for rule in case.rules}
        for device_no, case in of.cases.items():
            engine.set_rules(device_no, case.rules)
        said: list[object] = []
        now_ms = START_MS
        for place, step in enumerate(of.steps):
            now_ms += step.advance_ms
            sent = [
                (device_no, now_ms + device_no % 3, payload)
                for device_no, case in of.cases.items()
                if (payload := case.payloads[place]) is not None
            ]
            said += self._kept(engine.ingest(self._batch(sent)), rules)
            if step.ticks:
                now_ms += 1_000
                said += self._kept(engine.tick(now_ms), rules)
            if step.restarts:
                engine = self._restarted(engine, of, rules)
            said.append(engine.next_timer_ms())
        said += self._kept(engine.tick(now_ms + 10_000), rules)
        said.append(repr(sorted(engine.checkpoint(CHUNK))))
        return said

    def _kept(self, result: BatchResult, rules: dict[int, RuleSpec]) -> list[object]:
        parts = [getattr(result, part) for part in PARTS]
        self._names += parts[4]
        for edge in parts[0]:
            rules[edge.rule_no] = replace(rules[edge.rule_no], state=edge.state)
        return parts

    def _restarted(self, engine: TelemetryEngine, of: Chunk, rules: dict[int, RuleSpec]) -> TelemetryEngine:
        self._latest |= {device_no: latest for device_no, _, latest in engine.checkpoint(CHUNK)}
        fresh = self._make()
        fresh.add_metric_names(self._names)
        for device_no, latest in self._latest.items():
            fresh.restore(device_no, latest)
        for device_no, case in of.cases.items():
            fresh.set_rules(device_no, [rules[rule.rule_no] for rule in case.rules])
        return fresh


Engines = tuple[Callable[[], TelemetryEngine], Callable[[], TelemetryEngine]]


def differ(of: Chunk, engines: Engines, batch: Callable[[list[tuple[int, int, bytes]]], TelemetryBatch]) -> bool:
    native, reference = engines
    return Run(native, batch).through(of) != Run(reference, InMemoryTelemetryBatch.of).through(of)


def shrunk(of: Chunk, is_bad: Callable[[Chunk], bool]) -> Chunk:
    """A smallest part of a chunk that still fails: one case, no rule and no message that can be left out."""
    alone = next((of.only(device_no) for device_no in of.cases if is_bad(of.only(device_no))), of)
    if len(alone.cases) > 1:
        return alone
    ((device_no, case),) = alone.cases.items()
    smaller = True
    while smaller:
        smaller = False
        for less in _smaller(case):
            if is_bad(alone.only(device_no, less)):
                case, smaller = less, True
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
