"""Decisions about rules that need no I/O: what a draft must satisfy, when an edit re-arms, and when a rule runs in circles."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from domain.kernel.clock import MINUTE_MS
from domain.kernel.errors import FieldFault, Invalid
from domain.rules.model import MAX_CONDITIONS, MAX_COOLDOWN_SECONDS, MAX_FOR_SECONDS, Condition, Rule

MAX_RULES_PER_DEVICE = 64
LOOP_LIMIT = 10
"""A rule that fires more often than this within a minute drives itself, or is driven, in circles."""


def check(rule: Rule, known_metrics: Collection[str]) -> None:
    """Raises Invalid `VALIDATION_ERROR` or `UNKNOWN_METRIC` naming the fields."""
    faults = list(_bounds(rule))
    if faults:
        raise Invalid("The rule is not valid; see details.", details=faults)
    unknown = [*_unknown("conditions", rule.conditions, known_metrics)]
    unknown += _unknown("clearConditions", rule.clear_conditions, known_metrics)
    if unknown:
        names = ", ".join(sorted(known_metrics)) or "none yet"
        raise Invalid(
            f"A condition may only name a metric the device has reported at least once. Reported: {names}.",
            code="UNKNOWN_METRIC",
            details=unknown,
        )


def edited(rule: Rule, changes: Mapping[str, Any]) -> Rule:
    """The rule after an edit. It is re-armed only when what decides the match changed, or when it is switched on again."""
    after = replace(rule, **changes, revision=rule.revision + 1)
    if after.enabled and not rule.enabled:
        return replace(after, disabled_reason=None).rearmed()
    return after.rearmed() if after.trigger != rule.trigger else after


def _bounds(rule: Rule) -> Iterator[FieldFault]:
    if not 1 <= len(rule.conditions) <= MAX_CONDITIONS:
        yield FieldFault("conditions", f"takes 1 to {MAX_CONDITIONS} conditions; this has {len(rule.conditions)}.")
    if len(rule.clear_conditions) > MAX_CONDITIONS:
        yield FieldFault("clearConditions", f"takes at most {MAX_CONDITIONS} conditions.")
    if not 0 <= rule.for_seconds <= MAX_FOR_SECONDS:
        yield FieldFault("forSeconds", f"is 0 to {MAX_FOR_SECONDS} seconds.")
    if not 0 <= rule.cooldown_seconds <= MAX_COOLDOWN_SECONDS:
        yield FieldFault("cooldownSeconds", f"is 0 to {MAX_COOLDOWN_SECONDS} seconds.")


def _unknown(field: str, conditions: Sequence[Condition], known: Collection[str]) -> list[FieldFault]:
    return [
        FieldFault(f"{field}.{index}.metric", f"the device has never reported {condition.metric!r}.")
        for index, condition in enumerate(conditions)
        if condition.metric not in known
    ]


@dataclass(slots=True)
class LoopGuard:
    """Counts firings per rule over a rolling minute. Memory is bounded by the firings of the last minute."""

    _recent: dict[int, deque[int]]

    @classmethod
    def fresh(cls) -> LoopGuard:
        return cls({})

    def runs_in_circles(self, rule_no: int, at_ms: int) -> bool:
        """Count one firing; True when it is one too many."""
        times = self._recent.setdefault(rule_no, deque())
        while times and times[0] <= at_ms - MINUTE_MS:
            times.popleft()
        times.append(at_ms)
        return len(times) > LOOP_LIMIT

    def forget(self, rule_no: int) -> None:
        self._recent.pop(rule_no, None)

    def sweep(self, now_ms: int) -> None:
        for rule_no in [no for no, times in self._recent.items() if times[-1] <= now_ms - MINUTE_MS]:
            del self._recent[rule_no]
