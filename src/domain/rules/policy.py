"""Decisions about rules that need no I/O: validation, re-arming after an edit, and detection of loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from domain.kernel.clock import MINUTE_MS, is_of_earlier_clock
from domain.kernel.errors import FieldError, ValidationFailed
from domain.rules.model import MAX_CONDITIONS, MAX_COOLDOWN_SECONDS, MAX_FOR_SECONDS, Rule, RuleCondition, RuleFiring

MAX_RULES_PER_DEVICE = 64
MAX_FIRINGS_PER_MINUTE = 10
"""A rule that fires more often than this within a minute is in a loop."""
SWEEP_THRESHOLD = 1_024
"""Expired entries are removed each time this many more rules have fired than at the last sweep."""


def check_rule(rule: Rule, known_metrics: Collection[str]) -> None:
    """Raises ValidationFailed `VALIDATION_ERROR` or `UNKNOWN_METRIC` with the fields."""
    faults = list(_bound_errors(rule))
    if faults:
        raise ValidationFailed("The rule is not valid; see details.", details=faults)
    check_metrics_known(known_metrics, rule.conditions, rule.clear_conditions)


def check_metrics_known(
    known_metrics: Collection[str], conditions: Sequence[RuleCondition], clear_conditions: Sequence[RuleCondition]
) -> None:
    """Raises ValidationFailed `UNKNOWN_METRIC` with the fields."""
    unknown = [*_unknown_metric_errors("conditions", conditions, known_metrics)]
    unknown += _unknown_metric_errors("clearConditions", clear_conditions, known_metrics)
    if unknown:
        names = ", ".join(sorted(known_metrics)) or "none yet"
        raise ValidationFailed(
            f"A condition may only name a metric the device has reported at least once, or one that was made known "
            f"(POST /devices/{{deviceId}}/metrics). Known: {names}.",
            code="UNKNOWN_METRIC",
            details=unknown,
        )


def apply_changes(rule: Rule, changes: Mapping[str, Any]) -> Rule:
    """The rule after an edit. It is re-armed only when its match criteria changed or it is enabled again."""
    after = replace(rule, **changes, revision=rule.revision + 1)
    if after.enabled and not rule.enabled:
        after = replace(after, disabled_reason=None)
    return after.rearm() if needs_rearm(rule, after) else after


def needs_rearm(before: Rule, after: Rule) -> bool:
    """Whether the edit resets the match."""
    return after.match_criteria != before.match_criteria or (after.enabled and not before.enabled)


def _bound_errors(rule: Rule) -> Iterator[FieldError]:
    if not 1 <= len(rule.conditions) <= MAX_CONDITIONS:
        yield FieldError("conditions", f"must have 1 to {MAX_CONDITIONS} conditions, not {len(rule.conditions)}.")
    if len(rule.clear_conditions) > MAX_CONDITIONS:
        yield FieldError("clearConditions", f"must have at most {MAX_CONDITIONS} conditions.")
    if not 0 <= rule.for_seconds <= MAX_FOR_SECONDS:
        yield FieldError("forSeconds", f"must be 0 to {MAX_FOR_SECONDS} seconds.")
    if not 0 <= rule.cooldown_seconds <= MAX_COOLDOWN_SECONDS:
        yield FieldError("cooldownSeconds", f"must be 0 to {MAX_COOLDOWN_SECONDS} seconds.")


def _unknown_metric_errors(field: str, conditions: Sequence[RuleCondition], known: Collection[str]) -> list[FieldError]:
    return [
        FieldError(f"{field}.{index}.metric", f"the device has never reported {condition.metric!r}.")
        for index, condition in enumerate(conditions)
        if condition.metric not in known
    ]


def _counts_for(firing: RuleFiring, at_ms: int) -> bool:
    """Whether a firing at `at_ms` is within the minute before this one, by the same clock."""
    return at_ms > firing.at_ms - MINUTE_MS and not is_of_earlier_clock(at_ms, firing.at_ms)


@dataclass(slots=True)
class RuleLoopGuard:
    """Counts firings per rule over a rolling minute. Memory is bounded by the firings of the last minute.

    `find_looping` changes nothing, because a transaction may be retried; `record_firings` counts committed firings once.
    """

    _recent_firings_ms: dict[int, deque[int]] = field(default_factory=dict)
    _sweep_threshold: int = SWEEP_THRESHOLD

    def find_looping(self, firings: Sequence[RuleFiring]) -> list[RuleFiring]:
        """The firings that exceed their rule's limit, counting earlier ones in the list."""
        pending: dict[int, list[int]] = {}
        found = []
        for firing in firings:
            times = pending.setdefault(firing.rule_no, list(self._recent_firings_ms.get(firing.rule_no, ())))
            times.append(firing.at_ms)
            if sum(_counts_for(firing, at_ms) for at_ms in times) > MAX_FIRINGS_PER_MINUTE:
                found.append(firing)
        return found

    def record_firings(self, fired: Sequence[RuleFiring], looping: Sequence[RuleFiring]) -> None:
        """Count committed firings. Looping rules have been disabled and start from zero when enabled again."""
        for firing in fired:
            self._recent_firings_ms.setdefault(firing.rule_no, deque(maxlen=MAX_FIRINGS_PER_MINUTE)).append(firing.at_ms)
        for firing in looping:
            self._recent_firings_ms.pop(firing.rule_no, None)
        if len(self._recent_firings_ms) > self._sweep_threshold:
            self._sweep(max(firing.at_ms for firing in fired) - MINUTE_MS)

    def _sweep(self, until_ms: int) -> None:
        for rule_no in [no for no, times in self._recent_firings_ms.items() if times[-1] <= until_ms]:
            del self._recent_firings_ms[rule_no]
        self._sweep_threshold = 2 * len(self._recent_firings_ms) + SWEEP_THRESHOLD
