"""Rules: conditions on a device's telemetry, and the command that runs when they become true. Needs no I/O.

A rule is edge-triggered. It *matches* while its conditions hold and *fires* once, at the change from not matched to matched.
The engine keeps a `RuleState` for each rule and stores every change of it, so that a restart neither fires again nor loses a
match. `reference.py` defines conditions, matches and firings. An edit re-arms a rule only if it changes when the rule matches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from domain.devices.channels import RELAY_CHANNEL
from domain.kernel.domain_event import Json
from domain.kernel.errors import FieldError, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, MembershipId, RuleId

DEFAULT_PRIORITY = 100
MAX_CONDITIONS = 10
MAX_CONDITION_TEXT = 256
MAX_SILENT_SECONDS = 366 * 86_400
"""One year. The limit keeps every deadline far inside 64-bit milliseconds."""
MAX_FOR_SECONDS = 30 * 86_400
MAX_COOLDOWN_SECONDS = 30 * 86_400
MAX_RULES_PER_DEVICE = 64
MetricValue = bool | float | str
"""A reading's value: a number (IEEE double), a boolean or text."""


class Comparator(StrEnum):
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    EQUAL = "=="
    NOT_EQUAL = "!="
    SILENT = "silent"


class MatchMode(StrEnum):
    ALL = "ALL"
    ANY = "ANY"


@dataclass(frozen=True, slots=True)
class RuleCondition:
    """`metric comparator value`. Text only with `==` and `!=`; for `silent` the value is a number of seconds.

    Raises ValidationFailed when the value does not fit the comparator.
    """

    metric: str
    comparator: Comparator
    value: float | str

    def __post_init__(self) -> None:
        fault = _value_error(self.comparator, self.value)
        if fault is not None:
            raise ValidationFailed.for_field("value", fault)

    @property
    def silent_ms(self) -> int:
        """For a `silent` condition: the silence after which it holds, in milliseconds."""
        return int(float(self.value) * 1000)


def _value_error(comparator: Comparator, value: float | str) -> str | None:
    if isinstance(value, str):
        if comparator not in (Comparator.EQUAL, Comparator.NOT_EQUAL):
            return f"text can only be compared with == or !=, not with {comparator}. Use a number."
        if len(value) > MAX_CONDITION_TEXT:
            return f"text must have at most {MAX_CONDITION_TEXT} characters; shorten it."
        return None
    if not math.isfinite(value):
        return "must be a finite number."
    if comparator is Comparator.SILENT and not 1 <= value <= MAX_SILENT_SECONDS:
        return f"silent takes a number of seconds from 1 to {MAX_SILENT_SECONDS}."
    return None


@dataclass(frozen=True, slots=True)
class RuleAction:
    """The command to run; `params` is any JSON value that the command's schema accepts."""

    command: str
    params: Json = None
    channel: int = RELAY_CHANNEL

    @property
    def engine_command(self) -> str:
        """Rules exclude each other by it: on one channel, not on another."""
        return self.command if self.channel == RELAY_CHANNEL else f"{self.command}#{self.channel}"


@dataclass(frozen=True, slots=True)
class RuleState:
    """The stored state of a rule. Times are Unix milliseconds of the service's clock.

    `held_since_ms`: when the conditions became true, while `for_seconds` has not passed yet.
    """

    matched: bool = False
    held_since_ms: int | None = None
    last_fired_ms: int | None = None

    def not_after(self, now_ms: int) -> RuleState:
        """The state with times after `now_ms` set to it, so that a wait or a cooldown lasts its full length at most."""
        held_since_ms = None if self.held_since_ms is None else min(self.held_since_ms, now_ms)
        last_fired_ms = None if self.last_fired_ms is None else min(self.last_fired_ms, now_ms)
        return RuleState(self.matched, held_since_ms, last_fired_ms)


@dataclass(frozen=True, slots=True)
class EngineRule:
    """The part of a rule that the engine needs. Of equal priorities, the lower `rule_no` (the older rule) goes first."""

    rule_no: int
    conditions: tuple[RuleCondition, ...]
    command: str
    match: MatchMode = MatchMode.ALL
    clear_conditions: tuple[RuleCondition, ...] = ()
    priority: int = DEFAULT_PRIORITY
    for_seconds: int = 0
    cooldown_seconds: int = 0
    enabled: bool = True
    state: RuleState = RuleState()
    since_ms: int | None = None
    """When the rule was made, switched on or changed: none of its timers is judged at an earlier time. None: unknown."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of an account. `disabled_reason`: why the service disabled it, if it did."""

    rule_id: RuleId
    rule_no: int
    account_id: AccountId
    device_id: DeviceId
    device_no: int
    name: str
    conditions: tuple[RuleCondition, ...]
    action: RuleAction
    enabled: bool = True
    priority: int = DEFAULT_PRIORITY
    match: MatchMode = MatchMode.ALL
    clear_conditions: tuple[RuleCondition, ...] = ()
    for_seconds: int = 0
    cooldown_seconds: int = 0
    created_by: MembershipId | None = None
    state: RuleState = field(default_factory=RuleState)
    disabled_reason: str | None = None
    created_ms: int = 0
    revision: int = 1

    def to_spec(self, changed_ms: int | None = None) -> EngineRule:
        """`changed_ms`: of a change just now that decides when the rule matches."""
        return EngineRule(
            rule_no=self.rule_no,
            conditions=self.conditions,
            command=self.action.engine_command,
            match=self.match,
            clear_conditions=self.clear_conditions,
            priority=self.priority,
            for_seconds=self.for_seconds,
            cooldown_seconds=self.cooldown_seconds,
            enabled=self.enabled,
            state=self.state,
            since_ms=changed_ms or self.created_ms,
        )

    def rearm(self) -> Rule:
        """The rule as if it had never matched; `last_fired_ms` stays, so that a cooldown continues."""
        return replace(self, state=RuleState(last_fired_ms=self.state.last_fired_ms))

    def list_missing(self, reported: Collection[str]) -> list[str]:
        """The metrics, by name, without whose first report the rule cannot match: with ANY, one of them is enough."""
        named = {condition.metric for condition in self.conditions}
        missing = named.difference(reported)
        return sorted(missing) if self.match is MatchMode.ALL or missing == named else []

    @property
    def match_criteria(self) -> tuple[object, ...]:
        """Everything that decides when the rule matches: an edit that does not change this does not re-arm the rule."""
        return (self.match, self.conditions, self.clear_conditions, self.for_seconds)


@dataclass(frozen=True, slots=True)
class LatestReading:
    """A device's last report of one metric. `ts_ms` is the reading's own time."""

    metric: str
    value: MetricValue
    unit: str | None
    ts_ms: int


class RuleTransition(NamedTuple):
    """A rule's new state, to be stored. `matched_changed`: `matched` itself changed, not only `held_since_ms`."""

    device_no: int
    rule_no: int
    at_ms: int
    matched: bool
    held_since_ms: int | None
    last_fired_ms: int | None
    matched_changed: bool

    @property
    def state(self) -> RuleState:
        return RuleState(self.matched, self.held_since_ms, self.last_fired_ms)


class RuleFiring(NamedTuple):
    """A rule whose action must run now."""

    device_no: int
    rule_no: int
    at_ms: int


class RuleSuppression(NamedTuple):
    """A rule that matched but does not run: rule `winner_no` fired at the same time with the same or the opposite command.

    Without a winner, the rule's own cooldown suppressed it.
    """

    device_no: int
    rule_no: int
    at_ms: int
    winner_no: int | None


@dataclass(frozen=True, slots=True)
class ConditionEvaluation:
    """One condition of a dry run: the value it was compared with (None: never reported), whether it holds, and why."""

    metric: str
    comparator: Comparator
    expected: float | str
    actual: MetricValue | None
    holds: bool
    why: str


@dataclass(frozen=True, slots=True)
class InstantDryRunResult:
    """`holds`: the result of `conditions` with the rule's `match`; `clears`: of all `clear_conditions` (False without any)."""

    holds: bool
    clears: bool
    conditions: tuple[ConditionEvaluation, ...]
    clear_conditions: tuple[ConditionEvaluation, ...]


def in_firing_order(rules: Sequence[EngineRule]) -> list[EngineRule]:
    """Enabled rules, lower priority value first; equal priorities by age."""
    return sorted((rule for rule in rules if rule.enabled), key=lambda rule: (rule.priority, rule.rule_no))


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


def apply_changes(rule: Rule, changes: Mapping[str, Any]) -> Rule:
    """The rule after an edit. It is re-armed only when its match criteria changed or it is enabled again."""
    after = replace(rule, **changes, revision=rule.revision + 1)
    if after.enabled and not rule.enabled:
        after = replace(after, disabled_reason=None)
    return after.rearm() if needs_rearm(rule, after) else after


def needs_rearm(before: Rule, after: Rule) -> bool:
    """Whether the edit resets the match."""
    return after.match_criteria != before.match_criteria or (after.enabled and not before.enabled)
