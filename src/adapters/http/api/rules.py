"""Rules of a device: list, create, edit, delete and dry-run them, and make metrics known that they may name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, StringConstraints

from adapters.http.api.commands import CommandDefinitionResponse, CommandName
from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import (
    ChannelNumber,
    DisplayName,
    MetricName,
    PatchBody,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from adapters.http.core.turns import TurnKind
from domain.devices.channels import RELAY_CHANNEL
from domain.kernel.errors import FieldError, ValidationFailed
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Comparator, EngineRule, InstantDryRunResult, MatchMode, Rule, RuleAction, RuleCondition
from domain.rules.service import MAX_METRICS_PER_DEVICE, RuleService
from domain.telemetry.dry_run import HistoryDryRunResult, RuleDryRunService
from domain.telemetry.model import HistoryTimeRange

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
    channel: ChannelNumber = RELAY_CHANNEL


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

    def to_fields(self) -> dict[str, Any]:
        """Values of `Rule`. Raises ValidationFailed with a path such as `conditions.0.value`."""
        return {name: _to_domain_value(name, getattr(self, name)) for name in type(self).model_fields}


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

    def to_changes(self) -> dict[str, Any]:
        """As `RuleCreateRequest.to_fields`."""
        given = [name for name in type(self).model_fields if name in self.model_fields_set]
        return {name: _to_domain_value(name, getattr(self, name)) for name in given}


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
    channel: int


class RuleResponse(ResponseModel):
    rule_id: str
    device_id: str
    name: str
    enabled: bool = Field(description="False too while the rule waits for the first report of a metric.")
    waits_for: list[str] = Field(
        description="Metrics that the device has never reported: with their first report the rule starts by itself. Empty for a "
        "rule that was disabled.",
        examples=[[]],
    )
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

    @classmethod
    def from_domain(cls, rule: Rule, reported: Collection[str]) -> RuleResponse:
        missing = rule.list_missing(reported) if rule.enabled else []
        return cls.of(rule, enabled=rule.enabled and not missing, waits_for=missing, last_matched=rule.state.matched)


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

    @classmethod
    def from_domain(cls, run: InstantDryRunResult, trial: HistoryDryRunResult | None = None) -> RuleDryRunResponse:
        return cls.of(
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


INVALID_RULE_CODES = "UNKNOWN_METRIC UNKNOWN_CHANNEL UNKNOWN_COMMAND INVALID_PARAMS COMMAND_NEEDS_APPROVAL"
NOT_GRANTED_CODES = "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED CHANNEL_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED"


def rules_blueprint(rules: RuleService, trials: RuleDryRunService) -> ApiBlueprint:
    bp = ApiBlueprint("rules", "Rules")

    @bp.operation("GET /devices/<device_id>/rules", AllowedCallers.SESSION, "List a device's rules")
    async def list_rules(device_id: DeviceId, query: PageQueryParameters) -> HttpHandlerResult[list[RuleResponse]]:
        """Sorted by `priority`, lowest first, then by age, oldest first."""
        found = await rules.list(current_session(), device_id)
        reported = await rules.list_reported_metrics(current_session(), device_id)
        return list_response(
            found, query, lambda rule: RuleResponse.from_domain(rule, reported), lambda rule: (rule.priority, rule.rule_no)
        )

    @bp.operation("GET /devices/<device_id>/rules/<rule_id>", AllowedCallers.SESSION, "Get a rule")
    async def get_rule(device_id: DeviceId, rule_id: RuleId) -> RuleResponse:
        """With what it waits for."""
        rule = await rules.get(current_session(), device_id, rule_id)
        return RuleResponse.from_domain(rule, await rules.list_reported_metrics(current_session(), device_id))

    @bp.operation("GET /devices/<device_id>/rules/context", AllowedCallers.SESSION, "List metrics and commands for rules")
    async def get_rule_context(device_id: DeviceId) -> RuleContextResponse:
        """The metrics that conditions can use, and the commands that a rule can run."""
        return RuleContextResponse.of(await rules.get_context(current_session(), device_id))

    @bp.operation(
        "POST /devices/<device_id>/rules",
        AllowedCallers.SESSION,
        "Create a rule",
        status=201,
        errors={400: INVALID_RULE_CODES, 403: NOT_GRANTED_CODES, 409: "TOO_MANY_RULES"},
        idempotent=True,
    )
    async def create_rule(device_id: DeviceId, body: RuleCreateRequest) -> RuleResponse:
        """Runs its command on behalf of the member who saved it last, with that member's permissions at the time. A rule on a
        metric that was only made known waits (`waitsFor`) and starts with the first report."""
        rule = await rules.create(current_session(), device_id, body.to_fields())
        return RuleResponse.from_domain(rule, await rules.list_reported_metrics(current_session(), device_id))

    @bp.operation(
        "PATCH /devices/<device_id>/rules/<rule_id>",
        AllowedCallers.SESSION,
        "Edit a rule",
        errors={400: INVALID_RULE_CODES, 403: NOT_GRANTED_CODES},
    )
    async def update_rule(device_id: DeviceId, rule_id: RuleId, body: RuleUpdateRequest) -> RuleResponse:
        """Resets the rule's match state only if its conditions or timing changed, or if it is enabled again."""
        rule = await rules.update(current_session(), device_id, rule_id, body.to_changes())
        return RuleResponse.from_domain(rule, await rules.list_reported_metrics(current_session(), device_id))

    @bp.operation(
        "DELETE /devices/<device_id>/rules/<rule_id>", AllowedCallers.SESSION, "Delete a rule", errors={403: "ROLE_REQUIRED"}
    )
    async def delete_rule(device_id: DeviceId, rule_id: RuleId) -> None:
        """The rule no longer fires and no longer appears in lists."""
        await rules.delete(current_session(), device_id, rule_id)

    @bp.operation(
        "POST /devices/<device_id>/rules/test",
        AllowedCallers.SESSION,
        "Dry-run a rule that is not saved",
        errors={400: "UNKNOWN_METRIC"},
        turn=TurnKind.BULK,
    )
    async def test_rule_draft(device_id: DeviceId, body: RuleDraftDryRunRequest) -> RuleDryRunResponse:
        """Evaluates the conditions on stored telemetry from `from` to `to`. Changes nothing."""
        span = HistoryTimeRange(body.from_, body.to)
        trial = await trials.run_draft_on_history(current_session(), device_id, body.to_spec(), span)
        return RuleDryRunResponse.from_domain(trial.final_evaluation, trial)

    @bp.operation(
        "POST /devices/<device_id>/metrics",
        AllowedCallers.SESSION,
        "Make metrics known",
        errors={403: "ROLE_REQUIRED"},
        affects="Devices",
    )
    async def declare_metrics(device_id: DeviceId, body: MetricDeclarationRequest) -> MetricDeclarationResponse:
        """Rules may name them before the device has reported them. None is forgotten. Requires the role Member or higher."""
        known = await rules.declare_metrics(current_session(), device_id, body.metrics)
        return MetricDeclarationResponse(metrics=list(known))

    @bp.operation("POST /devices/<device_id>/rules/<rule_id>/test", AllowedCallers.SESSION, "Dry-run a rule", turn=TurnKind.BULK)
    async def test_rule(device_id: DeviceId, rule_id: RuleId, body: RuleDryRunRequest) -> RuleDryRunResponse:
        """Evaluates the rule on `readings` and the latest values, or on stored telemetry from `from` to `to`. Changes nothing."""
        caller, device, rule = current_session(), device_id, rule_id
        if body.readings is not None and body.from_ is None and body.to is None:
            return RuleDryRunResponse.from_domain(await trials.run_on_readings(caller, device, rule, body.readings))
        if body.readings is None and body.from_ is not None and body.to is not None:
            trial = await trials.run_on_history(caller, device, rule, HistoryTimeRange(body.from_, body.to))
            return RuleDryRunResponse.from_domain(trial.final_evaluation, trial)
        raise ValidationFailed("Give either `readings`, or both `from` and `to` in Unix milliseconds.")

    return bp


def _to_domain_value(name: str, value: Any) -> Any:
    if name == "conditions":
        return _to_conditions("conditions", value)
    if name == "clear_conditions":
        return _to_conditions("clearConditions", value)
    if name == "action":
        return RuleAction(value.command, value.params, value.channel)
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
