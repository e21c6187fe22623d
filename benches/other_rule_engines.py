"""Other ways to do the engine's work, each in its fastest form: one compiled object for each device, orjson, bits for `matched`.

Each gives a function from messages to the numbers of the rules that fire, in order. All rely on every message having all metrics of
its device, which the engine does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from domain.rules.model import EngineRule, RuleCondition, in_firing_order
from independent_fleet import METRICS, Device, Message

Run = Callable[[Sequence[Message]], list[int]]


def _orjson_loads() -> Callable[[bytes], Any]:
    loads: Callable[[bytes], Any] = pytest.importorskip("orjson", reason="orjson is not installed").loads
    return loads


def _rules(device: Device) -> list[EngineRule]:
    return in_firing_order([rule for rule in device.rules if rule.enabled])


def generated_python(fleet: Iterable[Device]) -> Run:
    """One function for each device, from a payload to the rules that fire."""
    loads = _orjson_loads()
    ingest = {device.number: _generated(device, loads) for device in fleet}

    def run(messages: Sequence[Message]) -> list[int]:
        return [rule_no for device_no, _, payload in messages for rule_no in ingest[device_no](payload)]

    return run


def _generated(device: Device, loads: Callable[[bytes], Any]) -> Callable[[bytes], Sequence[int]]:
    rules = _rules(device)
    used = sorted({condition.metric for rule in rules for condition in rule.conditions})
    reads = "; ".join(f"v{METRICS.index(name)} = v[{name!r}]" for name in used)
    bits = " | ".join(f"({' and '.join(map(_infix, rule.conditions))}) << {bit}" for bit, rule in enumerate(rules)) or "0"
    source = f"""
def ingest(payload):
    nonlocal matched, latest
    latest = v = loads(payload)
    {reads}
    now = {bits}
    began = now & ~matched
    matched = now
    return [rule_no for bit, rule_no in numbers if began & bit] if began else ()
"""
    maker = f"def make(loads, numbers):\n    matched = 0\n    latest = None{source.replace(chr(10), chr(10) + '    ')}\n    return ingest"
    names: dict[str, Any] = {}
    exec(maker, names)
    made: Callable[[bytes], Sequence[int]] = names["make"](
        loads, tuple((1 << bit, rule.rule_no) for bit, rule in enumerate(rules))
    )
    return made


def _infix(condition: RuleCondition) -> str:
    return f"v{METRICS.index(condition.metric)} {condition.comparator.value} {condition.value!r}"


def zen_engine(fleet: Iterable[Device]) -> Run:
    """One expression for each device, a list of booleans."""
    zen = pytest.importorskip("zen", reason="zen-engine is not installed")
    loads = _orjson_loads()
    compiled = {device.number: zen.compile_expression(_zen_list(device)).evaluate for device in fleet}
    return _by_lists(fleet, lambda device_no, payload: compiled[device_no](loads(payload)))


def _zen_list(device: Device) -> str:
    conditions = (
        "(" + " and ".join(f"{c.metric} {c.comparator.value} {c.value!r}" for c in rule.conditions) + ")"
        for rule in _rules(device)
    )
    return "[" + ", ".join(conditions) + "]"


def datalogic(fleet: Iterable[Device]) -> Run:
    """One rule for each device, from the payload's text to the text of a list of booleans."""
    peer = pytest.importorskip("datalogic_py", reason="datalogic-py is not installed")
    loads = _orjson_loads()
    engine = peer.Engine()
    compiled = {device.number: engine.compile(json.dumps(_json_logic(device))).evaluate_str for device in fleet}
    return _by_lists(fleet, lambda device_no, payload: loads(compiled[device_no](payload.decode())))


def _json_logic(device: Device) -> list[object]:
    return [{"and": [{c.comparator.value: [{"var": c.metric}, c.value]} for c in rule.conditions]} for rule in _rules(device)]


def _by_lists(fleet: Iterable[Device], evaluate: Callable[[int, bytes], list[bool]]) -> Run:
    numbers = {device.number: [rule.rule_no for rule in _rules(device)] for device in fleet}
    matched: dict[int, list[bool]] = {number: [False] * len(rules) for number, rules in numbers.items()}

    def run(messages: Sequence[Message]) -> list[int]:
        fired: list[int] = []
        for device_no, _, payload in messages:
            now = evaluate(device_no, payload)
            before = matched[device_no]
            if now != before:
                fired += [no for no, is_now, was in zip(numbers[device_no], now, before, strict=True) if is_now and not was]
                matched[device_no] = now
        return fired

    return run


PEERS: Mapping[str, Callable[[Sequence[Device]], Run]] = {
    "generated Python": generated_python,
    "zen-engine": zen_engine,
    "datalogic-py": datalogic,
}
