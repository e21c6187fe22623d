"""What a rule may contain, and whether an edit re-arms it. Needs no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from domain.kernel.errors import FieldError, ValidationFailed
from domain.rules.model import MAX_CONDITIONS, MAX_COOLDOWN_SECONDS, MAX_FOR_SECONDS, Rule, RuleCondition

MAX_RULES_PER_DEVICE = 64


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
