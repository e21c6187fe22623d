"""A workload that nothing in the engine was tuned for: what each device reports, and its rules, are its own.

A device reports its own five of twelve metrics in its own order, under names of up to sixteen characters, without spaces. One number
in five has no point. It has five rules of two conditions with any of the six comparators, each true on 10 to 50 % of the messages,
and one rule in ten is disabled; so about 0.37 rules fire a message. The device of a message is uniform at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from domain.rules.model import Comparator, EngineRule, RuleCondition

MEASURES = (
    "temperature", "humidity", "pressure_hpa", "battery_voltage", "signal_strength", "soil_moisture", "flow_rate", "illuminance",
    "particulate_pm25",
)  # fmt: skip
"""Uniform between -20 and 80 with one, two or three decimals."""
STATES = ("door_state", "valve_position", "relay_mode")
"""1 on six messages in ten, else 0, 2 or 3."""
METRICS = MEASURES + STATES
COMPARATORS = (
    Comparator.GREATER, Comparator.GREATER_EQUAL, Comparator.LESS, Comparator.LESS_EQUAL, Comparator.EQUAL, Comparator.NOT_EQUAL,
)  # fmt: skip
COMMANDS = ("ON", "TOGGLE", "FAN", "ALARM", "VALVE")
RULES = 5
NOW_MS = 1_790_000_000_000
LATER_MS = 2_000_000_000_000
Message = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True)
class Device:
    """Its metrics, indices into METRICS, in the order of its payloads."""

    number: int
    metrics: tuple[int, ...]
    rules: tuple[EngineRule, ...]


def device(number: int) -> Device:
    chance = random.Random(number)
    measures = chance.sample(range(len(MEASURES)), 4)
    state = len(MEASURES) + chance.randrange(len(STATES))
    own = [*measures, state]
    chance.shuffle(own)
    rules = tuple(_rule(chance, (number - 1) * RULES + place + 1, place, measures, state) for place in range(RULES))
    return Device(number, tuple(own), rules)


def _rule(chance: random.Random, rule_no: int, place: int, measures: list[int], state: int) -> EngineRule:
    conditions = tuple(_condition(chance, chance.choice(COMPARATORS), chance.choice(measures), state) for _ in range(2))
    return EngineRule(rule_no, conditions, COMMANDS[place], enabled=chance.random() >= 0.1)


def _condition(chance: random.Random, comparator: Comparator, measure: int, state: int) -> RuleCondition:
    if comparator is Comparator.EQUAL:
        return RuleCondition(METRICS[state], comparator, float(chance.choice((0, 2, 3))))
    if comparator is Comparator.NOT_EQUAL:
        return RuleCondition(METRICS[state], comparator, 1.0)
    share = chance.uniform(0.1, 0.5)
    limit = 80 - 100 * share if ">" in comparator.value else -20 + 100 * share
    return RuleCondition(METRICS[measure], comparator, round(limit, 2))


def devices(count: int) -> Iterator[Device]:
    return map(device, range(1, count + 1))


def messages(fleet: int, count: int) -> list[Message]:
    """About 100 bytes each, stamped with a time to come: they arrive when they are ingested."""
    chance = random.Random(fleet)
    order: dict[int, tuple[int, ...]] = {}
    numbers = [chance.randint(1, fleet) for _ in range(count)]
    for number in set(numbers):
        order[number] = device(number).metrics
    return [(number, LATER_MS, payload(chance, order[number])) for number in numbers]


def payload(chance: random.Random, metrics: tuple[int, ...]) -> bytes:
    return ("{" + ",".join(f'"{METRICS[metric]}":{_number(chance, metric)}' for metric in metrics) + "}").encode()


def _number(chance: random.Random, metric: int) -> str:
    if metric < len(MEASURES):
        return f"{chance.uniform(-20, 80):.{1 + metric % 3}f}"
    return "1" if chance.random() < 0.6 else chance.choice("023")
