"""A rule fires once per match; drafts are validated; edits reach the engine and re-arm only when the match criteria change."""

from __future__ import annotations

import pytest

from domain.commands.model import CommandDefinition, CommandKind, CommandWidget
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, NotFound, PermissionDenied, ValidationFailed
from domain.kernel.ids import CommandId, RuleId
from domain.rules.model import MAX_RULES_PER_DEVICE, Comparator, RuleAction, RuleCondition
from support.telemetry_world import TelemetryWorld


async def test_a_rule_fires_once_while_it_stays_matched_and_again_after_it_cleared(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device)
    for reading, commands in [(31, 1), (32, 1), (29, 1), (31, 2)]:
        await world.report(device, temperature=reading)
        assert await world.commands_of(device) == ["OFF"] * commands
    assert len(world.events_of_kind("rule_matched")) == 2


async def test_what_a_rule_last_matched_is_stored_with_the_reading(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    await world.report(device, temperature=31)
    assert (await world.rules.get(world.session(), device.device_id, rule.rule_id)).state.matched


async def test_a_condition_names_only_metrics_the_device_has_reported(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, humidity=20)
    with pytest.raises(ValidationFailed) as refusal:
        await world.rule(device)
    assert refusal.value.code == "UNKNOWN_METRIC"
    assert [fault.field for fault in refusal.value.details] == ["conditions.0.metric"]
    assert "humidity" in refusal.value.message


@pytest.mark.parametrize(
    ("bound", "field"),
    [
        ({"conditions": 0}, "conditions"),
        ({"conditions": 11}, "conditions"),
        ({"clear_conditions": 11}, "clearConditions"),
        ({"for_seconds": -1}, "forSeconds"),
        ({"cooldown_seconds": -1}, "cooldownSeconds"),
    ],
)
async def test_a_rule_has_one_to_ten_conditions_and_waits_no_negative_time(
    world: TelemetryWorld, bound: dict[str, int], field: str
) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    some = (RuleCondition("temperature", Comparator.GREATER, 30.0),)
    await world.rule(device, conditions=some * 10)
    ((name, count),) = bound.items()
    with pytest.raises(ValidationFailed) as refusal:
        await world.rule(device, **{name: some * count if "conditions" in name else count})
    assert [fault.field for fault in refusal.value.details] == [field]


async def test_a_command_that_needs_approval_cannot_be_a_rules_action(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    guarded = CommandDefinition(
        CommandId("cmd_00000000000000000001"),
        device.account_id,
        device.device_id,
        None,
        "OFF",
        "Off",
        None,
        CommandKind.ACTION,
        None,
        CommandWidget.BUTTON,
        True,
    )
    async with world.uow.write() as tx:
        await tx.definitions.add(guarded)
    with pytest.raises(ValidationFailed) as refusal:
        await world.rule(device)
    assert refusal.value.code == "COMMAND_NEEDS_APPROVAL"


async def test_a_command_that_came_to_need_approval_later_does_not_run_and_the_log_says_so(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device)
    guarded = CommandDefinition(
        CommandId("cmd_00000000000000000001"),
        device.account_id,
        device.device_id,
        None,
        "OFF",
        "Off",
        None,
        CommandKind.ACTION,
        None,
        CommandWidget.BUTTON,
        True,
    )
    async with world.uow.write() as tx:
        await tx.definitions.add(guarded)
    await world.report(device, temperature=31)
    assert await world.commands_of(device) == []
    [skipped] = world.events_of_kind("rule_skipped")
    assert skipped.data["code"] == "COMMAND_NEEDS_APPROVAL"


async def test_a_member_needs_a_grant_for_the_action_and_a_viewer_has_no_rules(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    fields = {"name": "r", "conditions": (RuleCondition("temperature", Comparator.GREATER, 30.0),), "action": RuleAction("OFF")}
    with pytest.raises(PermissionDenied) as refusal:
        await world.rules.create(world.session(Role.MEMBER), device.device_id, fields)
    assert refusal.value.code == "GRANT_MISSING"
    with pytest.raises(PermissionDenied) as refusal:
        await world.rules.create(world.session(Role.VIEWER), device.device_id, fields)
    assert refusal.value.code == "ROLE_REQUIRED"


async def test_changing_the_conditions_rearms_a_rule_and_renaming_does_not(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    await world.report(device, temperature=31)
    await world.rules.update(world.session(), device.device_id, rule.rule_id, {"name": "Other", "priority": 5})
    await world.report(device, temperature=32)
    assert len(await world.commands_of(device)) == 1
    hotter = (RuleCondition("temperature", Comparator.GREATER, 31.0),)
    await world.rules.update(world.session(), device.device_id, rule.rule_id, {"conditions": hotter})
    await world.report(device, temperature=33)
    assert len(await world.commands_of(device)) == 2


async def test_a_disabled_rule_does_not_fire_and_enabling_rearms_it(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device, enabled=False)
    await world.report(device, temperature=31)
    assert await world.commands_of(device) == []
    await world.rules.update(world.session(), device.device_id, rule.rule_id, {"enabled": True})
    await world.report(device, temperature=32)
    assert await world.commands_of(device) == ["OFF"]


async def test_a_deleted_rule_is_gone_from_engine_and_list(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    await world.rules.delete(world.session(), device.device_id, rule.rule_id)
    await world.report(device, temperature=31)
    assert await world.commands_of(device) == []
    assert list(await world.rules.list(world.session(), device.device_id)) == []
    with pytest.raises(NotFound):
        await world.rules.delete(world.session(), device.device_id, RuleId(rule.rule_id))


async def test_of_two_rules_with_the_same_command_the_lower_priority_runs_and_the_other_is_reported(
    world: TelemetryWorld,
) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device, name="second", priority=200)
    await world.rule(device, name="first", priority=1)
    await world.report(device, temperature=31)
    assert await world.commands_of(device) == ["OFF"]
    [lost] = world.events_of_kind("rule_suppressed")
    assert "'second'" in lost.description
    assert "'first'" in lost.description


async def test_a_looping_rule_is_disabled_with_a_reason(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    for _ in range(12):
        await world.report(device, temperature=31)
        await world.report(device, temperature=20)
    assert len(await world.commands_of(device)) == 10
    after = await world.rules.get(world.session(), device.device_id, rule.rule_id)
    assert not after.enabled
    assert after.disabled_reason is not None
    assert len(world.events_of_kind("rule_disabled")) == 1


async def test_a_device_takes_a_bounded_number_of_rules(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    for _ in range(MAX_RULES_PER_DEVICE):
        await world.rule(device)
    with pytest.raises(Conflict) as refusal:
        await world.rule(device)
    assert refusal.value.code == "TOO_MANY_RULES"


async def test_the_context_lists_the_metrics_and_commands_for_rules(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20, mode="eco")
    context = await world.rules.get_context(world.session(), device.device_id)
    assert context.metrics == ("mode", "temperature")
    assert {"ON", "OFF", "TOGGLE"} <= {definition.name for definition in context.commands}


async def test_a_rule_that_must_hold_for_a_while_fires_when_the_time_is_up_with_no_further_message(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device, for_seconds=60)
    await world.report(device, temperature=31)
    await world.tick()
    assert await world.commands_of(device) == []
    world.clock.forward(60_000)
    await world.tick()
    assert await world.commands_of(device) == ["OFF"]


async def test_a_rule_that_is_put_or_edited_wakes_the_timers(world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silence that begins to count now is due before anything the timers sleep for."""
    rung: list[int | None] = []
    monkeypatch.setattr(world.rules, "wake_timers", lambda: rung.append(world.engine.next_timer_ms()))
    device = await world.device()
    await world.report(device, temperature=20)
    received_ms = world.clock.now_ms() - 1_000
    quiet = RuleCondition("temperature", Comparator.SILENT, 60.0)
    rule = await world.rule(device, conditions=(quiet,))
    sooner = RuleCondition("temperature", Comparator.SILENT, 30.0)
    await world.rules.update(world.session(), device.device_id, rule.rule_id, {"conditions": (sooner,)})
    assert rung == [received_ms + 60_000, received_ms + 30_000]
