"""The native engine equals the reference engine on very many small cases: a rule set and a message sequence each.

LATCHBOARD_BULK_CASES sets how many (`.ci/run` runs a million), LATCHBOARD_BULK_SEED the number of the first chunk. A failure names
the chunk that reproduces it and shows its smallest failing part.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from adapters.engine.native import NativeEngine, make_batch
from domain.rules.model import Comparator, EngineRule, RuleCondition
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from property import engine_bulk as bulk

pytestmark = pytest.mark.bulk

CASES = int(os.environ.get("LATCHBOARD_BULK_CASES", "20000"))
SEED = int(os.environ.get("LATCHBOARD_BULK_SEED", "1"))
GROUP = 20
"""Chunks per task of a process."""
ENGINES: bulk.Engines = (NativeEngine, ReferenceTelemetryEngine)


def find_first_difference(numbers: list[int]) -> int | None:
    return next((number for number in numbers if bulk.engines_differ(bulk.chunk(number), ENGINES, make_batch)), None)


def test_the_native_engine_equals_the_reference_engine_on_very_many_cases() -> None:
    numbers = list(range(SEED, SEED + -(-CASES // bulk.CHUNK)))
    groups = [numbers[begin : begin + GROUP] for begin in range(0, len(numbers), GROUP)]
    workers = min(os.cpu_count() or 1, len(groups), 8)
    print(f"\n{len(numbers) * bulk.CHUNK} cases in {len(numbers)} chunks from {SEED}, {workers} processes")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = [number for number in pool.map(find_first_difference, groups, timeout=1_800) if number is not None]
    if found:
        smallest = bulk.reduce_failure(bulk.chunk(found[0]), lambda part: bulk.engines_differ(part, ENGINES, make_batch))
        raise AssertionError(
            f"LATCHBOARD_BULK_SEED={found[0]} LATCHBOARD_BULK_CASES=1 reproduces it; the smallest failing part is {smallest}"
        )


class WrongEngine(ReferenceTelemetryEngine):
    """Evaluates `>` as `>=`."""

    def set_rules(self, device_no: int, rules: list[EngineRule]) -> None:  # type: ignore[override]
        super().set_rules(
            device_no, [replace(rule, conditions=tuple(map(self._wrong_condition, rule.conditions))) for rule in rules]
        )

    def _wrong_condition(self, condition: RuleCondition) -> RuleCondition:
        if condition.comparator is not Comparator.GREATER:
            return condition
        return replace(condition, comparator=Comparator.GREATER_EQUAL)


def test_a_wrong_comparator_is_found_and_reduced_to_one_rule() -> None:
    failing = next(
        number for number in range(1, 50) if bulk.engines_differ(bulk.chunk(number), (NativeEngine, WrongEngine), make_batch)
    )
    smallest = bulk.reduce_failure(
        bulk.chunk(failing), lambda part: bulk.engines_differ(part, (NativeEngine, WrongEngine), make_batch)
    )
    (case,) = smallest.cases.values()
    assert len(case.rules) == 1
    assert any(condition.comparator is Comparator.GREATER for condition in case.rules[0].conditions)
