"""The reference implementation of rules. The native engine must return equal results.

Numbers are IEEE doubles: an integer beyond 2^53 is compared as the double nearest to it. A boolean compares as 1 or 0. A
condition on a metric that was never reported is false, whatever the comparator: an unknown temperature is neither below 5 nor
different from 5. Text compares only with text, by == and !=; a comparison of text and number is false.

Time is the service's clock: a message's arrival, a timer that was due before it, or the tick. `silent` counts from the arrival of
the metric's last report. When that clock is set, the times in the state are shifted, so that what has begun lasts as long as it
would have. Time in which the service could not hear the device counts neither as its silence nor as waiting (`resumed_ms`).

A rule becomes matched when its conditions have held for `for_seconds` and its clear conditions do not hold. It becomes unmatched
when all its clear conditions hold; without any, when its conditions no longer hold. When it becomes matched it fires, unless it
last fired less than `cooldown_seconds` ago: a match during the cooldown does not fire, and does not fire later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from domain.kernel.clock import SECOND_MS
from domain.rules.model import (
    Comparator,
    ConditionEvaluation,
    EngineRule,
    InstantDryRunResult,
    MatchMode,
    MetricValue,
    RuleCondition,
    RuleState,
)


@dataclass(frozen=True, slots=True)
class LastMetricValue:
    value: MetricValue
    ts_ms: int
    arrived_ms: int


LastReports = Mapping[str, LastMetricValue]

_COMPARISONS = {
    Comparator.GREATER: lambda actual, expected: actual > expected,
    Comparator.GREATER_EQUAL: lambda actual, expected: actual >= expected,
    Comparator.LESS: lambda actual, expected: actual < expected,
    Comparator.LESS_EQUAL: lambda actual, expected: actual <= expected,
    Comparator.EQUAL: lambda actual, expected: actual == expected,
    Comparator.NOT_EQUAL: lambda actual, expected: actual != expected,
}


def condition_holds(condition: RuleCondition, reports: LastReports, at_ms: int) -> bool:
    report = reports.get(condition.metric)
    if report is None:
        return False
    if condition.comparator is Comparator.SILENT:
        return report.arrived_ms + condition.silent_ms <= at_ms
    if isinstance(report.value, str) != isinstance(condition.value, str):
        return False
    if isinstance(report.value, str):
        return bool(_COMPARISONS[condition.comparator](report.value, condition.value))
    return bool(_COMPARISONS[condition.comparator](float(report.value), float(condition.value)))


def conditions_hold(rule: EngineRule, reports: LastReports, at_ms: int) -> bool:
    verdicts = (condition_holds(condition, reports, at_ms) for condition in rule.conditions)
    return all(verdicts) if rule.match is MatchMode.ALL else any(verdicts)


def clear_conditions_hold(rule: EngineRule, reports: LastReports, at_ms: int) -> bool:
    """Whether the clear conditions hold; False for a rule without any."""
    return bool(rule.clear_conditions) and all(condition_holds(condition, reports, at_ms) for condition in rule.clear_conditions)


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    """The state after an evaluation. `wants_to_fire`: the rule became matched outside its cooldown; `in_cooldown`: inside it."""

    state: RuleState
    wants_to_fire: bool = False
    in_cooldown: bool = False


def evaluate_rule(rule: EngineRule, state: RuleState, reports: LastReports, at_ms: int) -> RuleEvaluation:
    """Evaluate once. Another rule may still suppress a rule that wants to fire; only a winner's `last_fired_ms` is set."""
    clear = clear_conditions_hold(rule, reports, at_ms)
    hold = conditions_hold(rule, reports, at_ms)
    if state.matched:
        stays = not clear if rule.clear_conditions else hold
        return RuleEvaluation(state if stays else replace(state, matched=False, held_since_ms=None))
    if clear or not hold:
        return RuleEvaluation(replace(state, held_since_ms=None))
    since_ms = at_ms if state.held_since_ms is None else state.held_since_ms
    if at_ms - since_ms < rule.for_seconds * SECOND_MS:
        return RuleEvaluation(replace(state, held_since_ms=since_ms))
    last_ms, cooldown_ms = state.last_fired_ms, rule.cooldown_seconds * SECOND_MS
    cooling = cooldown_ms > 0 and last_ms is not None and at_ms - last_ms < cooldown_ms
    return RuleEvaluation(replace(state, matched=True, held_since_ms=None), wants_to_fire=not cooling, in_cooldown=cooling)


def watches_silence(rule: EngineRule) -> bool:
    return any(condition.comparator is Comparator.SILENT for condition in (*rule.conditions, *rule.clear_conditions))


def deadlines_ms(rule: EngineRule, state: RuleState, reports: LastReports) -> list[int]:
    """The instants, past and to come, at which time alone may change the rule's state."""
    due = []
    if not state.matched and state.held_since_ms is not None:
        due.append(state.held_since_ms + rule.for_seconds * SECOND_MS)
    for condition in (*rule.conditions, *rule.clear_conditions):
        report = reports.get(condition.metric)
        if condition.comparator is Comparator.SILENT and report is not None:
            due.append(report.arrived_ms + condition.silent_ms)
    return due


def next_deadline_ms(rule: EngineRule, state: RuleState, reports: LastReports, evaluated_ms: int | None) -> int | None:
    """When time alone may next change the rule's state. `evaluated_ms`: the last evaluation, None before the first."""
    due = deadlines_ms(rule, state, reports)
    return min((at_ms for at_ms in due if evaluated_ms is None or at_ms > evaluated_ms), default=None)


def resumed_ms(begun_ms: int, deaf_since_ms: int, heard_ms: int) -> int:
    """When what began at `begun_ms` would have begun if the time in which nobody could hear did not count."""
    return begun_ms + max(0, heard_ms - max(begun_ms, deaf_since_ms))


def shift_state(rule: EngineRule, state: RuleState, step_ms: int, now_ms: int) -> RuleState:
    """The state after the service's clock was set by `step_ms`, to `now_ms`. A firing whose cooldown is over keeps its time."""
    held_since_ms, last_fired_ms = state.held_since_ms, state.last_fired_ms
    if held_since_ms is not None:
        held_since_ms += step_ms
    cooldown_ms = rule.cooldown_seconds * SECOND_MS
    if cooldown_ms > 0 and last_fired_ms is not None and now_ms - step_ms - last_fired_ms < cooldown_ms:
        last_fired_ms += step_ms
    return RuleState(state.matched, held_since_ms, last_fired_ms)


OPPOSITE_COMMANDS = {"ON": "OFF", "OFF": "ON", "OPEN": "CLOSE", "CLOSE": "OPEN"}


def find_winner(rule: EngineRule, fired: Iterable[EngineRule]) -> EngineRule | None:
    """The first of the rules firing at the same time whose command equals the rule's or is its opposite."""
    for other in fired:
        if other.command in (rule.command, _opposite_of(rule.command)):
            return other
    return None


def _opposite_of(command: str) -> str | None:
    """`OFF#2` of `ON#2` (`RuleAction.engine_command`)."""
    name, separator, channel = command.partition("#")
    opposite = OPPOSITE_COMMANDS.get(name)
    return None if opposite is None else f"{opposite}{separator}{channel}"


def explain_rule(rule: EngineRule, reports: LastReports, at_ms: int) -> InstantDryRunResult:
    return InstantDryRunResult(
        holds=conditions_hold(rule, reports, at_ms),
        clears=clear_conditions_hold(rule, reports, at_ms),
        conditions=tuple(_explain_condition(condition, reports, at_ms) for condition in rule.conditions),
        clear_conditions=tuple(_explain_condition(condition, reports, at_ms) for condition in rule.clear_conditions),
    )


def _explain_condition(condition: RuleCondition, reports: LastReports, at_ms: int) -> ConditionEvaluation:
    report = reports.get(condition.metric)
    holds = condition_holds(condition, reports, at_ms)
    return ConditionEvaluation(
        metric=condition.metric,
        comparator=condition.comparator,
        expected=condition.value,
        actual=None if report is None else report.value,
        holds=holds,
        why=_explain_reason(condition, report, holds, at_ms),
    )


def _explain_reason(condition: RuleCondition, report: LastMetricValue | None, holds: bool, at_ms: int) -> str:
    if report is None:
        return f"{condition.metric} was never reported, so the condition is false"
    if condition.comparator is Comparator.SILENT:
        quiet = max(0, at_ms - report.arrived_ms) / SECOND_MS
        return f"{condition.metric} was last reported {quiet:g} s ago; {condition.value:g} s are needed"
    if isinstance(report.value, str) != isinstance(condition.value, str):
        kinds = ("text", "a number") if isinstance(report.value, str) else ("a number", "text")
        return f"{condition.metric} is {kinds[0]} and is compared with {kinds[1]}, so the condition is false"
    return f"{report.value!r} {condition.comparator} {condition.value!r} is {str(holds).lower()}"
