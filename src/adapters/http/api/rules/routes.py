"""Rule routes: list, create, edit, delete and dry-run the rules of a device."""

from __future__ import annotations

from adapters.http.api.rules import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Rule
from domain.rules.service import DeviceMetricDeclarationService, RuleService
from domain.telemetry.dry_run import RuleDryRunService
from domain.telemetry.history import HistoryTimeRange

INVALID_RULE_CODES = "UNKNOWN_METRIC UNKNOWN_COMMAND INVALID_PARAMS COMMAND_NEEDS_APPROVAL"
NOT_GRANTED_CODES = "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED"


def _shown(rule: Rule) -> schema.RuleResponse:
    return schema.RuleResponse.of(rule, last_matched=rule.state.matched)


def rules_blueprint(rules: RuleService, trials: RuleDryRunService, declarations: DeviceMetricDeclarationService) -> ApiBlueprint:
    bp = ApiBlueprint("rules", "Rules")

    @bp.operation("GET /devices/<device_id>/rules", AllowedCallers.SESSION, "List a device's rules")
    async def list_rules(device_id: DeviceId) -> list[schema.RuleResponse]:
        """Sorted by `priority`, lowest first, then by age, oldest first."""
        return [_shown(rule) for rule in await rules.list(current_session(), device_id)]

    @bp.operation("GET /devices/<device_id>/rules/context", AllowedCallers.SESSION, "List metrics and commands for rules")
    async def get_rule_context(device_id: DeviceId) -> schema.RuleContextResponse:
        """The metrics that conditions can use, and the commands that a rule can run."""
        return schema.RuleContextResponse.of(await rules.get_context(current_session(), device_id))

    @bp.operation(
        "POST /devices/<device_id>/rules",
        AllowedCallers.SESSION,
        "Create a rule",
        status=201,
        errors={400: INVALID_RULE_CODES, 403: NOT_GRANTED_CODES, 409: "TOO_MANY_RULES"},
        idempotent=True,
    )
    async def create_rule(device_id: DeviceId, body: schema.RuleCreateRequest) -> schema.RuleResponse:
        """Runs its command on behalf of the member who saved it last, with that member's permissions at the time."""
        return _shown(await rules.create(current_session(), device_id, schema.to_rule_fields(body)))

    @bp.operation(
        "PATCH /devices/<device_id>/rules/<rule_id>",
        AllowedCallers.SESSION,
        "Edit a rule",
        errors={400: INVALID_RULE_CODES, 403: NOT_GRANTED_CODES},
    )
    async def update_rule(device_id: DeviceId, rule_id: RuleId, body: schema.RuleUpdateRequest) -> schema.RuleResponse:
        """Resets the rule's match state only if its conditions or timing changed, or if it is enabled again."""
        fields = schema.to_rule_fields(body)
        return _shown(await rules.update(current_session(), device_id, rule_id, fields))

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
    )
    async def test_rule_draft(device_id: DeviceId, body: schema.RuleDraftDryRunRequest) -> schema.RuleDryRunResponse:
        """Evaluates the conditions on stored telemetry from `from` to `to`. Changes nothing."""
        span = HistoryTimeRange(body.from_, body.to)
        trial = await trials.run_draft_on_history(current_session(), device_id, body.to_spec(), span)
        return schema.dry_run_response(trial.final_evaluation, trial)

    @bp.operation(
        "POST /devices/<device_id>/metrics",
        AllowedCallers.SESSION,
        "Make metrics known",
        errors={403: "ROLE_REQUIRED"},
        affects="Devices",
    )
    async def declare_metrics(device_id: DeviceId, body: schema.MetricDeclarationRequest) -> schema.MetricDeclarationResponse:
        """Rules may name them before the device has reported them. None is forgotten. Requires the role Member or higher."""
        known = await declarations.declare(current_session(), device_id, body.metrics)
        return schema.MetricDeclarationResponse(metrics=list(known))

    @bp.operation("POST /devices/<device_id>/rules/<rule_id>/test", AllowedCallers.SESSION, "Dry-run a rule")
    async def test_rule(device_id: DeviceId, rule_id: RuleId, body: schema.RuleDryRunRequest) -> schema.RuleDryRunResponse:
        """Evaluates the rule on `readings` and the latest values, or on stored telemetry from `from` to `to`. Changes nothing."""
        caller, device, rule = current_session(), device_id, rule_id
        if body.readings is not None and body.from_ is None and body.to is None:
            return schema.dry_run_response(await trials.run_on_readings(caller, device, rule, body.readings))
        if body.readings is None and body.from_ is not None and body.to is not None:
            trial = await trials.run_on_history(caller, device, rule, HistoryTimeRange(body.from_, body.to))
            return schema.dry_run_response(trial.final_evaluation, trial)
        raise ValidationFailed("Give either `readings`, or both `from` and `to` in Unix milliseconds.")

    return bp
