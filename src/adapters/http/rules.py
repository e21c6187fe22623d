"""Rules of a device: what they are made of, create, edit, delete, and what one would have done."""

from __future__ import annotations

from quart import Blueprint

from adapters.http.auth import Access, current_session
from adapters.http.commands_schema import DefinitionReply
from adapters.http.operation import operation
from adapters.http.rules_schema import (
    DryRunReply,
    NewRule,
    RuleChanges,
    RuleReply,
    TestRule,
    dry_run_reply,
    rule_reply,
    to_fields,
)
from adapters.http.schema import Done, Reply
from domain.kernel.errors import Invalid
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.service import RuleService
from domain.telemetry.paging import Span
from domain.telemetry.trial import TrialService

INVALID = "UNKNOWN_METRIC UNKNOWN_COMMAND INVALID_PARAMS COMMAND_NEEDS_APPROVAL"
NOT_GRANTED = "ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED"


class RuleContext(Reply):
    metrics: list[str]
    commands: list[DefinitionReply]


def rules_blueprint(rules: RuleService, trials: TrialService) -> Blueprint:
    bp = Blueprint("rules", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/devices/<device_id>/rules", tag="Rules", access=Access.SESSION, summary="List a device's rules")
    async def list_rules(device_id: str) -> list[RuleReply]:
        """The lower `priority` first, then the older."""
        return [rule_reply(rule) for rule in await rules.list(current_session(), DeviceId(device_id))]

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/rules/context",
        tag="Rules",
        access=Access.SESSION,
        summary="Metrics and commands a rule may use",
    )
    async def rule_context(device_id: str) -> RuleContext:
        """What conditions can be about, and which commands a rule can run."""
        context = await rules.context(current_session(), DeviceId(device_id))
        return RuleContext(metrics=list(context.metrics), commands=[DefinitionReply.of(one) for one in context.commands])

    @operation(
        bp,
        "POST",
        "/devices/<device_id>/rules",
        tag="Rules",
        access=Access.SESSION,
        summary="Create a rule",
        status=201,
        errors={400: INVALID, 403: NOT_GRANTED, 409: "TOO_MANY_RULES"},
        idempotent=True,
    )
    async def create_rule(device_id: str, body: NewRule) -> RuleReply:
        """It runs its command as whoever saved it last, and with what that member is granted at that moment."""
        return rule_reply(await rules.create(current_session(), DeviceId(device_id), to_fields(body)))

    @operation(
        bp,
        "PATCH",
        "/devices/<device_id>/rules/<rule_id>",
        tag="Rules",
        access=Access.SESSION,
        summary="Edit a rule",
        description="The rule is armed anew only when what decides its match changed, or when it is enabled again.",
        errors={400: INVALID, 403: NOT_GRANTED},
    )
    async def edit_rule(device_id: str, rule_id: str, body: RuleChanges) -> RuleReply:
        fields = to_fields(body)
        return rule_reply(await rules.edit(current_session(), DeviceId(device_id), RuleId(rule_id), fields))

    @operation(
        bp,
        "DELETE",
        "/devices/<device_id>/rules/<rule_id>",
        tag="Rules",
        access=Access.SESSION,
        summary="Delete a rule",
        errors={403: "ROLE_REQUIRED"},
    )
    async def delete_rule(device_id: str, rule_id: str) -> Done:
        """It fires no more, and is in no list any more."""
        await rules.delete(current_session(), DeviceId(device_id), RuleId(rule_id))
        return Done()

    @operation(
        bp,
        "POST",
        "/devices/<device_id>/rules/<rule_id>/test",
        tag="Rules",
        access=Access.SESSION,
        summary="What a rule would have done",
        description="With `readings`: on top of the last values. With `from` and `to`: over stored telemetry. Changes nothing.",
    )
    async def test_rule(device_id: str, rule_id: str, body: TestRule) -> DryRunReply:
        caller, device, rule = current_session(), DeviceId(device_id), RuleId(rule_id)
        if body.readings is not None and body.from_ is None and body.to is None:
            return dry_run_reply(await trials.on_readings(caller, device, rule, body.readings))
        if body.readings is None and body.from_ is not None and body.to is not None:
            trial = await trials.on_history(caller, device, rule, Span(body.from_, body.to))
            return dry_run_reply(trial.last, trial)
        raise Invalid("Give either `readings`, or both `from` and `to` (Unix milliseconds).")

    return bp
