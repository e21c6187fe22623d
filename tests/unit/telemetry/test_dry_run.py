"""Rules are tried on readings, made up or stored, and nothing changes."""

from __future__ import annotations

import pytest

from domain.rules.model import Comparator, RuleCondition
from domain.telemetry.model import HistoryTimeRange
from support.telemetry_world import TelemetryWorld


async def test_a_dry_run_on_readings_explains_each_condition_and_changes_nothing(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    run = await world.rule_dry_runs.run_on_readings(world.session(), device.device_id, rule.rule_id, {"temperature": 31})
    assert run.holds
    assert run.conditions[0].actual == 31
    assert run.conditions[0].why
    assert await world.commands_of(device) == []


async def test_a_dry_run_over_history_returns_when_it_would_have_fired(world: TelemetryWorld) -> None:
    device = await world.device()
    begin = world.clock.now_ms()
    for reading in (20, 31, 32, 29, 35):
        await world.report(device, temperature=reading)
    rule = await world.rule(device)
    trial = await world.rule_dry_runs.run_on_history(
        world.session(), device.device_id, rule.rule_id, HistoryTimeRange(begin, begin + 60_000)
    )
    assert trial.fired_ms == (begin + 1_000, begin + 4_000)
    assert trial.is_complete
    assert trial.message_count == 5
    assert await world.commands_of(device) == []


async def test_a_trial_looks_at_every_message_of_an_instant_that_lies_on_a_pages_edge(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("domain.telemetry.dry_run.PAGE_MESSAGES", 2)
    device = await world.device()
    begin = world.clock.now_ms()
    await world.report(device, temperature=20)
    for humidity in (1, 2, 3):
        await world.report(device, ts=begin + 1_000, m={"humidity": humidity})
    await world.report(device, temperature=31)
    rule = await world.rule(device)
    trial = await world.rule_dry_runs.run_on_history(
        world.session(), device.device_id, rule.rule_id, HistoryTimeRange(begin, begin + 60_000)
    )
    assert (trial.message_count, trial.is_complete, len(trial.fired_ms)) == (5, True, 1)


async def test_a_trial_that_was_cut_short_says_so_and_explains_where_it_stopped(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("domain.telemetry.dry_run.PAGE_MESSAGES", 2)
    monkeypatch.setattr("domain.telemetry.dry_run.MAX_MESSAGES", 2)
    device = await world.device()
    begin = world.clock.now_ms()
    for reading in (20, 31, 20, 31):
        await world.report(device, temperature=reading)
    quiet = RuleCondition("temperature", Comparator.SILENT, 600.0)
    rule = await world.rule(device, conditions=(quiet,))
    trial = await world.rule_dry_runs.run_on_history(
        world.session(), device.device_id, rule.rule_id, HistoryTimeRange(begin, begin + 10**6)
    )
    assert (trial.message_count, trial.is_complete, trial.fired_ms) == (2, False, ())
    assert trial.final_evaluation.conditions[0].why == "temperature was last reported 0 s ago; 600 s are needed"
