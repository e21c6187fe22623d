"""Request and response models of rules, and their conversion to and from the domain."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, StringConstraints

from adapters.http.api.commands.schemas import CommandDefinitionResponse, CommandName
from adapters.http.core.schemas import DisplayName, PatchBody, RequestBodyModel, ResponseModel, Timestamp
from domain.kernel.errors import FieldError, ValidationFailed
from domain.rules.model import Comparator, EngineRule, InstantDryRunResult, MatchMode, RuleAction, RuleCondition
from domain.rules.service import MAX_METRICS_PER_DEVICE
from domain.telemetry.dry_run import HistoryDryRunResult

MetricName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
DeviceMetricNames = Annotated[
    list[MetricName],
    Field(
        max_length=MAX_METRICS_PER_DEVICE,
        description="Metrics that rules may name before the device has reported them. None is forgotten.",
        examples=[["temperature"]],
    ),
]
ConditionText = Annotated[str, StringConstraints(max_length=256)]
ComparatorSymbol = Literal[">", ">=", "<", "<=", "==", "!=", "silent"]
Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
DurationSeconds = Annotated[int, Field(ge=0, le=30 * 86_400)]
UnixMs = Annotated[int, Field(ge=0, le=10**15)]


class RuleConditionRequest(RequestBodyModel):
    metric: MetricName = Field(examples=["temperature"])
    comparator: ComparatorSymbol = Field(examples=[">"])
    value: float | ConditionText = Field(
        examples=[30], description="A number, or text with `==` and `!=`. With `silent`: seconds without a reading."
    )


class RuleActionRequest(RequestBodyModel):
    command: CommandName = Field(examples=["OFF"])
    params: JsonValue = None


Conditions = Annotated[list[RuleConditionRequest], Field(min_length=1, max_length=10)]
ClearConditions = Annotated[list[RuleConditionRequest], Field(max_length=10)]


class RuleCreateRequest(RequestBodyModel):
    name: DisplayName
    conditions: Conditions
    action: RuleActionRequest
    enabled: bool = True
    priority: Priority = 100
    match: Literal["ALL", "ANY"] = "ALL"
    for_seconds: DurationSeconds = 0
    cooldown_seconds: DurationSeconds = 0
    clear_conditions: ClearConditions = Field(default_factory=list)


class RuleUpdateRequest(PatchBody):
    name: DisplayName | None = None
    conditions: Conditions | None = None
    action: RuleActionRequest | None = None
    enabled: bool | None = None
    priority: Priority | None = None
    match: Literal["ALL", "ANY"] | None = None
    for_seconds: DurationSeconds | None = None
    cooldown_seconds: DurationSeconds | None = None
    clear_conditions: ClearConditions | None = None


class RuleDryRunRequest(RequestBodyModel):
    """Give either `readings`, or `from` and `to`."""

    __test__ = False

    readings: dict[MetricName, bool | float | ConditionText] | None = Field(
        default=None, max_length=128, examples=[{"temperature": 31}]
    )
    from_: UnixMs | None = Field(default=None, alias="from", description="Unix milliseconds.")
    to: UnixMs | None = Field(default=None, description="Unix milliseconds.")


class RuleDraftDryRunRequest(RequestBodyModel):
    """The conditions and timing of a rule that need not be saved, and a stretch of stored telemetry."""

    __test__ = False

    conditions: Conditions
    match: Literal["ALL", "ANY"] = "ALL"
    for_seconds: DurationSeconds = 0
    cooldown_seconds: DurationSeconds = 0
    clear_conditions: ClearConditions = Field(default_factory=list)
    from_: UnixMs = Field(alias="from", description="Unix milliseconds.")
    to: UnixMs = Field(description="Unix milliseconds.")

    def to_spec(self) -> EngineRule:
        return self.to_domain(
            EngineRule,
            rule_no=1,
            conditions=_to_conditions("conditions", self.conditions),
            command="ON",
            match=MatchMode(self.match),
            clear_conditions=_to_conditions("clearConditions", self.clear_conditions),
        )


class RuleConditionResponse(ResponseModel):
    metric: str
    comparator: str
    value: float | str


class RuleActionResponse(ResponseModel):
    command: str
    params: JsonValue


class RuleResponse(ResponseModel):
    rule_id: str
    device_id: str
    name: str
    enabled: bool
    priority: int
    conditions: list[RuleConditionResponse]
    action: RuleActionResponse
    last_matched: bool
    match: str
    for_seconds: int
    cooldown_seconds: int
    clear_conditions: list[RuleConditionResponse]
    disabled_reason: str | None
    created_at: Timestamp


class ConditionEvaluationResponse(ResponseModel):
    metric: str
    comparator: str
    expected: float | str
    actual: bool | float | str | None = Field(description="The latest value; null if the metric was never reported.")
    holds: bool
    why: str


class RuleDryRunResponse(ResponseModel):
    """`wouldFire`: the conditions hold and the clear conditions do not. A rule that already matches does not fire again, and a
    rule with `forSeconds` fires only after its conditions have held that long. `firedAt`: when the action would have run, for
    stored telemetry only."""

    would_fire: bool
    conditions: list[ConditionEvaluationResponse]
    clear_conditions: list[ConditionEvaluationResponse]
    fired_at: list[Timestamp] | None = None
    messages: int | None = None
    complete: bool | None = None


def to_rule_fields(given: RuleCreateRequest | RuleUpdateRequest) -> dict[str, Any]:
    """The fields that the body sets, as values of `Rule`. Raises ValidationFailed with a path such as `conditions.0.value`."""
    fields: dict[str, Any] = {}
    for name in type(given).model_fields:
        value = getattr(given, name)
        if isinstance(given, RuleUpdateRequest) and name not in given.model_fields_set:
            continue
        fields[name] = _to_domain_value(name, value)
    return fields


def _to_domain_value(name: str, value: Any) -> Any:
    if name == "conditions":
        return _to_conditions("conditions", value)
    if name == "clear_conditions":
        return _to_conditions("clearConditions", value)
    if name == "action":
        return RuleAction(value.command, value.params)
    return MatchMode(value) if name == "match" else value


def _to_conditions(field: str, given: list[RuleConditionRequest]) -> tuple[RuleCondition, ...]:
    made: list[RuleCondition] = []
    for index, one in enumerate(given):
        value = one.value if isinstance(one.value, str) else float(one.value)
        try:
            made.append(RuleCondition(one.metric, Comparator(one.comparator), value))
        except ValidationFailed as error:
            path = f"{field}.{index}.value"
            message = error.details[0].message if error.details else error.message
            raise ValidationFailed(f"{path}: {message}", details=[FieldError(path, message)]) from None
    return tuple(made)


def dry_run_response(run: InstantDryRunResult, trial: HistoryDryRunResult | None = None) -> RuleDryRunResponse:
    return RuleDryRunResponse.of(
        run,
        would_fire=run.holds and not run.clears if trial is None else bool(trial.fired_ms),
        fired_at=None if trial is None else trial.fired_ms,
        messages=None if trial is None else trial.message_count,
        complete=None if trial is None else trial.is_complete,
    )


class MetricDeclarationRequest(RequestBodyModel):
    metrics: DeviceMetricNames


class MetricDeclarationResponse(ResponseModel):
    metrics: list[str] = Field(description="All that rules of the device may name, by name.")


class RuleContextResponse(ResponseModel):
    metrics: list[str]
    commands: list[CommandDefinitionResponse]
