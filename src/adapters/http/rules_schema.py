"""The wire shapes of rules, and their way to and from the domain."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, StringConstraints

from adapters.http.schema import Body, Change, Name, Reply
from domain.kernel.clock import iso
from domain.kernel.errors import FieldFault, Invalid
from domain.rules.model import Action, Comparator, Condition, DryRun, Explained, Match, Rule
from domain.telemetry.trial import Trial

MetricName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
CommandName = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{1,64}$")]
ConditionText = Annotated[str, StringConstraints(max_length=256)]
Sign = Literal[">", ">=", "<", "<=", "==", "!=", "silent"]
Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
Seconds = Annotated[int, Field(ge=0, le=30 * 86_400)]
UnixMs = Annotated[int, Field(ge=0, le=10**15)]


class ConditionBody(Body):
    metric: MetricName = Field(examples=["temperature"])
    comparator: Sign = Field(examples=[">"])
    value: float | ConditionText = Field(examples=[30], description="A number; text with `==` and `!=`; seconds with `silent`.")


class ActionBody(Body):
    command: CommandName = Field(examples=["OFF"])
    params: JsonValue = None


Conditions = Annotated[list[ConditionBody], Field(min_length=1, max_length=10)]
ClearConditions = Annotated[list[ConditionBody], Field(max_length=10)]


class NewRule(Body):
    name: Name
    conditions: Conditions
    action: ActionBody
    enabled: bool = True
    priority: Priority = 100
    match: Literal["ALL", "ANY"] = "ALL"
    for_seconds: Seconds = 0
    cooldown_seconds: Seconds = 0
    clear_conditions: ClearConditions = Field(default_factory=list)


class RuleChanges(Change):
    name: Name | None = None
    conditions: Conditions | None = None
    action: ActionBody | None = None
    enabled: bool | None = None
    priority: Priority | None = None
    match: Literal["ALL", "ANY"] | None = None
    for_seconds: Seconds | None = None
    cooldown_seconds: Seconds | None = None
    clear_conditions: ClearConditions | None = None


class TestRule(Body):
    """Either `readings`, or `from` and `to`."""

    __test__ = False

    readings: dict[MetricName, bool | float | ConditionText] | None = Field(
        default=None, max_length=128, examples=[{"temperature": 31}]
    )
    from_: UnixMs | None = Field(default=None, alias="from", description="Unix milliseconds.")
    to: UnixMs | None = Field(default=None, description="Unix milliseconds.")


class ConditionReply(Reply):
    metric: str
    comparator: str
    value: float | str


class ActionReply(Reply):
    command: str
    params: JsonValue


class RuleReply(Reply):
    rule_id: str
    device_id: str
    name: str
    enabled: bool
    priority: int
    conditions: list[ConditionReply]
    action: ActionReply
    last_matched: bool
    match: str
    for_seconds: int
    cooldown_seconds: int
    clear_conditions: list[ConditionReply]
    disabled_reason: str | None
    created_at: str


class ExplainedReply(Reply):
    metric: str
    comparator: str
    expected: float | str
    actual: bool | float | str | None = Field(description="What it was compared with; null when never reported.")
    holds: bool
    why: str


class DryRunReply(Reply):
    """`wouldFire`: the conditions hold and the clear conditions do not; a rule that matches already does not fire again, and one
    with `forSeconds` only when they have held that long. `firedAt`, over stored telemetry: when the action would have run."""

    would_fire: bool
    conditions: list[ExplainedReply]
    clear_conditions: list[ExplainedReply]
    fired_at: list[str] | None = None
    messages: int | None = None
    complete: bool | None = None


def to_fields(given: NewRule | RuleChanges) -> dict[str, Any]:
    """Rule's own field values of what the body sets. Raises Invalid that names `conditions.0.value` and the like."""
    fields: dict[str, Any] = {}
    for name in type(given).model_fields:
        value = getattr(given, name)
        if isinstance(given, RuleChanges) and name not in given.model_fields_set:
            continue
        fields[name] = _to_domain(name, value)
    return fields


def _to_domain(name: str, value: Any) -> Any:
    if name == "conditions":
        return _conditions("conditions", value)
    if name == "clear_conditions":
        return _conditions("clearConditions", value)
    if name == "action":
        return Action(value.command, value.params)
    return Match(value) if name == "match" else value


def _conditions(field: str, given: list[ConditionBody]) -> tuple[Condition, ...]:
    made: list[Condition] = []
    for index, one in enumerate(given):
        value = one.value if isinstance(one.value, str) else float(one.value)
        try:
            made.append(Condition(one.metric, Comparator(one.comparator), value))
        except Invalid as error:
            path = f"{field}.{index}.value"
            message = error.details[0].message if error.details else error.message
            raise Invalid(f"{path}: {message}", details=[FieldFault(path, message)]) from None
    return tuple(made)


def _condition_reply(condition: Condition) -> ConditionReply:
    return ConditionReply(metric=condition.metric, comparator=condition.comparator.value, value=_number(condition.value))


def _number(value: float | str) -> float | str:
    """30.0 reads as 30, as it was written."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def rule_reply(rule: Rule) -> RuleReply:
    return RuleReply(
        rule_id=rule.rule_id,
        device_id=rule.device_id,
        name=rule.name,
        enabled=rule.enabled,
        priority=rule.priority,
        conditions=[_condition_reply(condition) for condition in rule.conditions],
        action=ActionReply(command=rule.action.command, params=rule.action.params),
        last_matched=rule.state.matched,
        match=rule.match.value,
        for_seconds=rule.for_seconds,
        cooldown_seconds=rule.cooldown_seconds,
        clear_conditions=[_condition_reply(condition) for condition in rule.clear_conditions],
        disabled_reason=rule.disabled_reason,
        created_at=iso(rule.created_at),
    )


def dry_run_reply(run: DryRun, trial: Trial | None = None) -> DryRunReply:
    return DryRunReply(
        would_fire=run.holds and not run.clears if trial is None else bool(trial.fired_ms),
        conditions=[_explained(one) for one in run.conditions],
        clear_conditions=[_explained(one) for one in run.clear_conditions],
        fired_at=None if trial is None else [iso(at_ms) for at_ms in trial.fired_ms],
        messages=None if trial is None else trial.messages,
        complete=None if trial is None else trial.complete,
    )


def _explained(one: Explained) -> ExplainedReply:
    return ExplainedReply(
        metric=one.metric,
        comparator=one.comparator.value,
        expected=_number(one.expected),
        actual=one.actual,
        holds=one.holds,
        why=one.why,
    )
