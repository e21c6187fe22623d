"""The engine's work done by other libraries, for comparison: JSON bytes → five numbers → a device's rules → transitions → fired rules by priority.

Each one parses the bytes with msgspec, the fastest JSON parser for Python, and keeps latest values and `matched` in
dictionaries, as a program around that library would. Each constructor returns a function from a message to the rule numbers that
fire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from domain.rules.model import EngineRule, in_firing_order

Evaluate = Callable[[Mapping[str, float]], bool]
Ingest = Callable[[int, bytes], list[int]]
_PARSE = msgspec.json.Decoder(dict[str, float]).decode


def interpreted(fleet: Mapping[int, Sequence[EngineRule]], compile_rule: Callable[[EngineRule], Evaluate]) -> Ingest:
    """State and transitions around a library that only evaluates conditions. Equal rules share one compilation."""
    known: dict[object, Evaluate] = {}
    rules: dict[int, list[tuple[int, Evaluate]]] = {}
    for device_no, specs in fleet.items():
        compiled = []
        for spec in in_firing_order(specs):
            if spec.conditions not in known:
                known[spec.conditions] = compile_rule(spec)
            compiled.append((spec.rule_no, known[spec.conditions]))
        rules[device_no] = compiled
    last: dict[int, dict[str, float]] = {device_no: {} for device_no in fleet}
    matched: set[int] = set()

    def ingest(device_no: int, payload: bytes) -> list[int]:
        values = last[device_no]
        values.update(_PARSE(payload))
        fired = []
        for rule_no, holds in rules[device_no]:
            if holds(values):
                if rule_no not in matched:
                    matched.add(rule_no)
                    fired.append(rule_no)
            else:
                matched.discard(rule_no)
        return fired

    return ingest


def generated_python(spec: EngineRule) -> Evaluate:
    tests = (f"v[{each.metric!r}] {each.comparator.value} {each.value!r}" for each in spec.conditions)
    made: Evaluate = eval("lambda v: " + " and ".join(tests))
    return made


def zen_engine(spec: EngineRule) -> Evaluate:
    zen = pytest.importorskip("zen", reason="zen-engine is not installed")
    compiled = zen.compile_expression(_infix(spec, "and"))
    return lambda values: bool(compiled.evaluate(values))


def rule_engine(spec: EngineRule) -> Evaluate:
    peer = pytest.importorskip("rule_engine", reason="rule-engine is not installed")
    matches: Evaluate = peer.Rule(_infix(spec, "and")).matches
    return matches


def cel(spec: EngineRule) -> Evaluate:
    peer = pytest.importorskip("cel", reason="common-expression-language is not installed")
    program = peer.compile(_infix(spec, "&&"))
    return lambda values: bool(program.execute(values))


def datalogic(spec: EngineRule) -> Evaluate:
    peer = pytest.importorskip("datalogic_py", reason="datalogic-py is not installed")
    tests = [{each.comparator.value: [{"var": each.metric}, each.value]} for each in spec.conditions]
    compiled = peer.Engine().compile(json.dumps({"and": tests}))
    return lambda values: bool(compiled.evaluate(values))


def _infix(spec: EngineRule, glue: str) -> str:
    return f" {glue} ".join(f"{each.metric} {each.comparator.value} {each.value!r}" for each in spec.conditions)


def numpy_planes(fleet: Mapping[int, Sequence[EngineRule]], metrics: Sequence[str]) -> Ingest:
    """Evaluates all rules of a device together, with thresholds and signs as arrays. Supports `>`, `>=`, `<` and `<=` only."""
    numpy: Any = pytest.importorskip("numpy", reason="numpy is not installed")
    place = {name: i for i, name in enumerate(metrics)}
    planes = {}
    for device_no, specs in fleet.items():
        ordered = in_firing_order(specs)
        slots = numpy.array([[place[each.metric] for each in spec.conditions] for spec in ordered])
        signs = numpy.array([[1.0 if ">" in each.comparator.value else -1.0 for each in spec.conditions] for spec in ordered])
        limits = numpy.array([[float(each.value) for each in spec.conditions] for spec in ordered])
        strict = numpy.array([["=" not in each.comparator.value for each in spec.conditions] for spec in ordered])
        limits = numpy.where(strict, numpy.nextafter(limits * signs, numpy.inf), limits * signs)
        numbers = numpy.array([spec.rule_no for spec in ordered])
        planes[device_no] = (slots, signs, limits, numbers, numpy.zeros(len(ordered), dtype=bool))
    values = {device_no: numpy.full(len(metrics), numpy.nan) for device_no in fleet}

    def ingest(device_no: int, payload: bytes) -> list[int]:
        mine = values[device_no]
        for name, value in _PARSE(payload).items():
            mine[place[name]] = value
        slots, signs, limits, numbers, matched = planes[device_no]
        now = (mine[slots] * signs >= limits).all(axis=1)
        fired: list[int] = numbers[now & ~matched].tolist()
        matched[:] = now
        return fired

    return ingest
