"""Generates cases for the engine: rule sets, message sequences, timers, restarts.

Plain `random` with a seed: a million cases take minutes, and a number identifies a failing case.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from domain.rules.model import Comparator, EngineRule, MatchMode, MetricValue, RuleCondition, RuleState

START_MS = 1_790_000_000_000
METRICS = ("temperature", "humidity", "mode", "door", "é", 'a"b', "ts", "u", "m")
NUMBERS = (0.0, -0.0, 1.0, 5.0, 20.5, 21.4, 30.0, 31.0, -7.25, 1e308, 5e-324, float(2**53), float(2**53 + 2), 2.0**31, -(2.0**31))
LITERALS = (
    "9007199254740993",
    "9007199254740992",
    "1e400",
    "-1e400",
    "NaN",
    "-Infinity",
    "1E2",
    "0.1e1",
    "-0",
    "21.40",
    "null",
    "[1]",
    '{"x":1}',
    "true",
    "false",
    '"eco"',
    '"heat"',
    '""',
    '"' + "x" * 257 + '"',
    "12345678901234567890123",
    "01",
    "1.",
)
TEXTS = ("eco", "heat", "", "true")
OFFSETS_MS = (0, 0, 0, -1_000, -60_000, -3_600_000, 5_000, 119_999, 120_000, 120_001, 3_600_000, 86_400_000, 86_400_001)
"""Of a device's clock. Two minutes ahead is still believed, a day ahead is still stored."""
UNUSUAL_TIMES = (
    *("12345", "-1", '"x"', "null", "NaN", "1e999", "1e300", "9007199254740993", "99999999999.9", "100000000000"),
    *("999999999.9", "1e9", "1795233602", "1795233602.120", "9999999999.9", "10000000000"),
)
NUMERIC = (
    Comparator.GREATER,
    Comparator.GREATER_EQUAL,
    Comparator.LESS,
    Comparator.LESS_EQUAL,
    Comparator.EQUAL,
    Comparator.NOT_EQUAL,
)
COMMANDS = ("ON", "OFF", "TOGGLE", "FAN")
INVALID_PAYLOADS = (
    b"",
    b"{",
    b"nul",
    b"[]",
    b"{}",
    b"[1]",
    b"3",
    b'"x"',
    b"\xff",
    b"[[]]",
    b'{"a":1}x',
    b'{"\\ud800":1}',
    b'{"a":1,}',
    b"[" * 40 + b"]" * 40,
    b'{"m":{}}',
    b'{"m":{},"u":3}',
    b'{"":1}',
    b'{"\\u0001":1}',
    b'{"a\x7f":1}',
    b"\xef\xbb\xbf{}",
)


@dataclass(frozen=True)
class Ingest:
    messages: list[tuple[int, int, bytes]]
    now_ms: int | None


@dataclass(frozen=True)
class Tick:
    now_ms: int


@dataclass(frozen=True)
class ShiftClock:
    step_ms: int
    now_ms: int


@dataclass(frozen=True)
class Deafen:
    since_ms: int
    until_ms: int
    partition: tuple[int, int] | None
    connected: dict[int, int]
    """Device number → since when."""


@dataclass(frozen=True)
class HearAll:
    now_ms: int


@dataclass(frozen=True)
class SetRules:
    device_no: int
    rules: list[EngineRule]


@dataclass(frozen=True)
class SetWatched:
    device_no: int
    on: bool


@dataclass(frozen=True)
class RemoveDevice:
    device_no: int


@dataclass(frozen=True)
class Checkpoint:
    limit: int


@dataclass(frozen=True)
class Restart:
    """Rebuild the engine from names, checkpoints, later rows and rule states; the rules come before or after the values."""

    rules_first: bool
    now_ms: int | None


Action = Ingest | Tick | ShiftClock | Deafen | HearAll | SetRules | SetWatched | RemoveDevice | Checkpoint | Restart


def case(number: int) -> Iterator[Action]:
    """The actions of the case with this number; always the same ones."""
    return _Case(random.Random(number)).actions()


class _Case:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now_ms = START_MS
        self._devices = chance.sample((1, 2, 3, 1024, 2**24 + 5), chance.randint(1, 2))
        self._metrics = chance.sample(METRICS, chance.randint(1, 4))
        self._next_rule = 1
        self._only_plain_numbers = chance.random() < 0.5

    def actions(self) -> Iterator[Action]:
        for device_no in self._devices:
            if self._chance.random() < 0.9:
                yield SetRules(device_no, self._rules())
        for _ in range(self._chance.randint(3, 14)):
            self._now_ms += self._chance.choice((0, 1, 400, 1_000, 2_000, 5_000, 30_000, 70_000, -500))
            yield self._action()
        yield Tick(self._now_ms + 100_000)
        yield Checkpoint(10)

    def _action(self) -> Action:
        dice = self._chance.random()
        device_no = self._chance.choice(self._devices)
        if dice < 0.66:
            messages = [self._message() for _ in range(self._chance.choice((0, 1, 1, 1, 2, 5)))]
            return Ingest(messages, self._chance.choice((None, self._now_ms)))
        if dice < 0.78:
            return Tick(self._now_ms)
        if dice < 0.80:
            step_ms = self._chance.choice((3_600_000, -3_600_000, 2_500, -2_500))
            self._now_ms += step_ms
            return ShiftClock(step_ms, self._now_ms)
        if dice < 0.83:
            since_ms, until_ms = (self._now_ms + self._chance.choice(steps) for steps in ((0, -2_500, -3_600_000), (0, 2_500)))
            connected = {each: self._now_ms - self._chance.choice((0, 1_000, 7_200_000)) for each in self._devices}
            partition = self._chance.choice((None, (0, 2), (1, 2)))
            return Deafen(since_ms, until_ms, partition, connected if self._chance.random() < 0.3 else {})
        if dice < 0.845:
            return HearAll(self._now_ms)
        if dice < 0.88:
            return SetRules(device_no, self._rules())
        if dice < 0.92:
            return SetWatched(device_no, self._chance.random() < 0.7)
        if dice < 0.94:
            return RemoveDevice(device_no)
        if dice < 0.97:
            return Checkpoint(self._chance.choice((0, 1, 5)))
        return Restart(self._chance.random() < 0.5, self._chance.choice((None, self._now_ms, self._now_ms - 300_000)))

    def _rules(self) -> list[EngineRule]:
        return [self._rule() for _ in range(self._chance.choice((0, 1, 2, 3, 6)))]

    def _rule(self) -> EngineRule:
        chance = self._chance
        plain = chance.random() < 0.4
        self._next_rule += 1
        return EngineRule(
            rule_no=self._next_rule,
            conditions=self._conditions(chance.choice((1, 1, 2, 3, 10)), plain),
            command=chance.choice(COMMANDS),
            match=chance.choice((MatchMode.ALL, MatchMode.ANY)),
            clear_conditions=() if plain else self._conditions(chance.choice((0, 0, 1, 2)), False),
            priority=chance.choice((100, 100, 50, -3)),
            for_seconds=0 if plain else chance.choice((0, 0, 1, 5)),
            cooldown_seconds=0 if plain else chance.choice((0, 0, 3)),
            enabled=chance.random() < 0.9,
            state=self._state(),
            since_ms=chance.choice((None, self._now_ms, self._now_ms - 2_000, self._now_ms + 500)),
        )

    def _state(self) -> RuleState:
        if self._chance.random() < 0.7:
            return RuleState()
        earlier_ms = self._now_ms - self._chance.choice((0, 1_000, 60_000))
        matched = self._chance.random() < 0.5
        held_since_ms = None if matched or self._chance.random() < 0.5 else earlier_ms
        return RuleState(matched, held_since_ms, self._chance.choice((None, earlier_ms)))

    def _conditions(self, count: int, plain: bool) -> tuple[RuleCondition, ...]:
        return tuple(self._condition(plain) for _ in range(count))

    def _condition(self, plain: bool) -> RuleCondition:
        metric = self._chance.choice(self._metrics)
        dice = 1.0 if plain else self._chance.random()
        if dice < 0.2:
            return RuleCondition(metric, Comparator.SILENT, self._chance.choice((1, 2.5, 10)))
        if dice < 0.35:
            comparator = self._chance.choice((Comparator.EQUAL, Comparator.NOT_EQUAL))
            return RuleCondition(metric, comparator, self._chance.choice(TEXTS))
        return RuleCondition(metric, self._chance.choice(NUMERIC), self._chance.choice(NUMBERS))

    def _message(self) -> tuple[int, int, bytes]:
        device_no = self._chance.choice(self._devices)
        arrived_ms = self._now_ms + self._chance.choice((0, 0, 0, 0, 0, 3, -2, 3_600_000, -3_600_000))
        return device_no, arrived_ms, self._payload(arrived_ms)

    def _payload(self, arrived_ms: int) -> bytes:
        dice = self._chance.random()
        if dice < 0.06:
            return self._chance.choice(INVALID_PAYLOADS)
        if dice < 0.12:
            count = self._chance.randint(1, 3)
            return b"[" + b",".join(self._object(arrived_ms) for _ in range(count)) + b"]"
        return self._object(arrived_ms)

    def _object(self, arrived_ms: int) -> bytes:
        chance = self._chance
        space = "" if chance.random() < 0.7 else " "
        names = self._metrics if chance.random() < 0.6 else chance.choices(self._metrics, k=chance.randint(1, 3))
        values = [f"{self._key(name)}:{space}{self._literal()}" for name in names]
        members = [("," + space).join(values)]
        if chance.random() < 0.5:
            members = ['"m":' + space + "{" + members[0] + "}"]
        if chance.random() < 0.4:
            ts = arrived_ms + chance.choice(OFFSETS_MS)
            text = str(ts) if chance.random() < 0.9 else chance.choice((*UNUSUAL_TIMES, f"{ts}.7", f"{ts // 1000}"))
            members.insert(chance.randint(0, 1), '"ts":' + text)
        if chance.random() < 0.15:
            unit = chance.choice(('"C"', '"%"', "3", '"' + "u" * 33 + '"'))
            members.insert(chance.randint(0, len(members)), '"u":{' + self._key(names[0]) + ":" + unit + "}")
        return ("{" + ",".join(members) + "}").encode()

    def _key(self, name: str) -> str:
        return json.dumps(name, ensure_ascii=self._chance.random() < 0.2)

    def _literal(self) -> str:
        if not self._only_plain_numbers and self._chance.random() < 0.25:
            return self._chance.choice(LITERALS)
        number: MetricValue = self._chance.choice(NUMBERS)
        return repr(number) if self._chance.random() < 0.5 else str(self._chance.randint(-40, 40) / 2)
