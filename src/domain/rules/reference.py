"""The readable definition of a rule. The native engine must equal it.

Numbers are IEEE doubles: an integer beyond 2^53 is compared as the double nearest to it. A boolean compares as 1 or 0. A
condition whose metric was never reported is false, whatever the comparator: an unknown temperature is neither below 5 nor
different from 5. Text compares with text only, by == and !=; anything else between text and number is false.

Time is the service's clock: a message's arrival, or the tick. `silent` counts from the arrival of the metric's last report.

A rule turns from unmatched to matched when its conditions hold, have held for `for_seconds`, and its clear conditions do not
hold. It turns back when its clear conditions hold, all of them; without any, when its conditions no longer hold. At the turn to
matched it fires, unless it last fired less than `cooldown_seconds` ago: that turn is spent and not made up for later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from domain.kernel.clock import SECOND_MS
from domain.rules.model import Comparator, Condition, DryRun, Explained, Match, RuleSpec, RuleState, Value


@dataclass(frozen=True, slots=True)
class Report:
    """A metric's last value, its own time, and when it arrived."""

    value: Value
    ts_ms: int
    heard_ms: int


Reports = Mapping[str, Report]

_HOLDS = {
    Comparator.GREATER: lambda actual, expected: actual > expected,
    Comparator.GREATER_EQUAL: lambda actual, expected: actual >= expected,
    Comparator.LESS: lambda actual, expected: actual < expected,
    Comparator.LESS_EQUAL: lambda actual, expected: actual <= expected,
    Comparator.EQUAL: lambda actual, expected: actual == expected,
    Comparator.NOT_EQUAL: lambda actual, expected: actual != expected,
}


def holds(condition: Condition, reports: Reports, at_ms: int) -> bool:
    report = reports.get(condition.metric)
    if report is None:
        return False
    if condition.comparator is Comparator.SILENT:
        return report.heard_ms + condition.silent_ms <= at_ms
    if isinstance(report.value, str) != isinstance(condition.value, str):
        return False
    if isinstance(report.value, str):
        return bool(_HOLDS[condition.comparator](report.value, condition.value))
    return bool(_HOLDS[condition.comparator](float(report.value), float(condition.value)))


def satisfied(rule: RuleSpec, reports: Reports, at_ms: int) -> bool:
    verdicts = (holds(condition, reports, at_ms) for condition in rule.conditions)
    return all(verdicts) if rule.match is Match.ALL else any(verdicts)


def cleared(rule: RuleSpec, reports: Reports, at_ms: int) -> bool:
    """Whether the clear conditions hold; False for a rule without any."""
    return bool(rule.clear_conditions) and all(holds(condition, reports, at_ms) for condition in rule.clear_conditions)


@dataclass(frozen=True, slots=True)
class Step:
    """The state after an evaluation. `wants_to_fire`: it turned to matched outside its cooldown; `cooling`: inside it."""

    state: RuleState
    wants_to_fire: bool = False
    cooling: bool = False


def step(rule: RuleSpec, state: RuleState, reports: Reports, at_ms: int) -> Step:
    """Evaluate once. A rule that wants to fire may still lose against another; only a winner's `last_fired_ms` is set."""
    clear = cleared(rule, reports, at_ms)
    hold = satisfied(rule, reports, at_ms)
    if state.matched:
        stays = not clear if rule.clear_conditions else hold
        return Step(state if stays else replace(state, matched=False, held_since_ms=None))
    if clear or not hold:
        return Step(replace(state, held_since_ms=None))
    since_ms = at_ms if state.held_since_ms is None else state.held_since_ms
    if at_ms - since_ms < rule.for_seconds * SECOND_MS:
        return Step(replace(state, held_since_ms=since_ms))
    last_ms, cooldown_ms = state.last_fired_ms, rule.cooldown_seconds * SECOND_MS
    cooling = cooldown_ms > 0 and last_ms is not None and at_ms - last_ms < cooldown_ms
    return Step(replace(state, matched=True, held_since_ms=None), wants_to_fire=not cooling, cooling=cooling)


def deadline(rule: RuleSpec, state: RuleState, reports: Reports, evaluated_ms: int | None) -> int | None:
    """When time alone may next change the rule's state; `evaluated_ms` None for a rule not evaluated yet."""
    due = []
    if not state.matched and state.held_since_ms is not None:
        due.append(state.held_since_ms + rule.for_seconds * SECOND_MS)
    for condition in (*rule.conditions, *rule.clear_conditions):
        report = reports.get(condition.metric)
        if condition.comparator is Comparator.SILENT and report is not None:
            due.append(report.heard_ms + condition.silent_ms)
    if evaluated_ms is not None:
        due = [at_ms for at_ms in due if at_ms > evaluated_ms]
    return min(due, default=None)


OPPOSITE = {"ON": "OFF", "OFF": "ON"}


def winner_over(rule: RuleSpec, fired: Iterable[RuleSpec]) -> RuleSpec | None:
    """The first of those that already fire at once whose command is the same as the rule's, or the opposite."""
    for other in fired:
        if other.command in (rule.command, OPPOSITE.get(rule.command)):
            return other
    return None


def explain(rule: RuleSpec, reports: Reports, at_ms: int) -> DryRun:
    return DryRun(
        holds=satisfied(rule, reports, at_ms),
        clears=cleared(rule, reports, at_ms),
        conditions=tuple(_explained(condition, reports, at_ms) for condition in rule.conditions),
        clear_conditions=tuple(_explained(condition, reports, at_ms) for condition in rule.clear_conditions),
    )


def _explained(condition: Condition, reports: Reports, at_ms: int) -> Explained:
    report = reports.get(condition.metric)
    verdict = holds(condition, reports, at_ms)
    return Explained(
        metric=condition.metric,
        comparator=condition.comparator,
        expected=condition.value,
        actual=None if report is None else report.value,
        holds=verdict,
        why=_why(condition, report, verdict, at_ms),
    )


def _why(condition: Condition, report: Report | None, verdict: bool, at_ms: int) -> str:
    if report is None:
        return f"{condition.metric} was never reported, so the condition is false"
    if condition.comparator is Comparator.SILENT:
        quiet = max(0, at_ms - report.heard_ms) / SECOND_MS
        return f"{condition.metric} was last reported {quiet:g} s ago; {condition.value:g} s are needed"
    if isinstance(report.value, str) != isinstance(condition.value, str):
        kinds = ("text", "a number") if isinstance(report.value, str) else ("a number", "text")
        return f"{condition.metric} is {kinds[0]} and is compared with {kinds[1]}, so the condition is false"
    return f"{report.value!r} {condition.comparator} {condition.value!r} is {str(verdict).lower()}"
