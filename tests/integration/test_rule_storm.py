"""Hundreds of rules fire at one moment: they are stored in steps, commands go out meanwhile, and no deadline passes in the queue."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.workers.rule_timers import STEP_RECORDS
from domain.commands.model import DEFAULT_TTL_MS
from domain.ingest.results import IngestResult
from support.in_process_app import in_process_app
from support.rule_storm import add_rules, all_fire, link_of
from support.waiting import TIMEOUT_S

RULES = 1_200
STEP_TAKES_MS = DEFAULT_TTL_MS // 2


async def test_a_storm_is_stored_in_steps_and_its_first_commands_do_not_wait_for_the_rest(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as app:
        rules = await add_rules(app, RULES)
        timers, dispatch, link = app.program.workers.rule_timers, app.services.dispatch, link_of(app)
        store = timers._store
        steps: list[int] = []
        sent_before_step: list[int] = []

        async def store_slowly(result: IngestResult) -> None:
            """As on a loaded machine: while a step is stored, half the time passes that a command has."""
            while await dispatch.send_queued():
                pass
            sent_before_step.append(len(link.sent))
            steps.append(len(result.rule_firings))
            app.clock.forward(STEP_TAKES_MS)
            await store(result)

        timers._store = store_slowly  # type: ignore[method-assign]
        async with asyncio.timeout(TIMEOUT_S), app.services.engine_commit_lock:
            assert await timers.store_steps(all_fire(rules, app.clock.now_ms()))
        while await dispatch.send_queued():
            pass

        assert sum(steps) == RULES
        assert max(steps) <= STEP_RECORDS
        assert len(steps) >= 4
        assert sent_before_step[1:] == [sum(steps[: number + 1]) for number in range(len(steps) - 1)]
        assert [sent.device_id for sent in link.sent] == [rule.device_id for rule in rules]  # oldest first, none expired


async def test_what_one_device_did_is_in_one_step_and_the_oldest_come_first(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as app:
        rules = await add_rules(app, 8)
    late, early = all_fire(rules[:4], 2_000), all_fire(rules[4:], 1_000)
    joined = IngestResult(
        (), (), (), [*late.rule_transitions, *early.rule_transitions], [*late.rule_firings, *early.rule_firings], (), ()
    )
    steps = joined.in_steps(4)
    assert [[one.device_no for one in step.rule_firings] for step in steps] == [
        [rules[4].device_no, rules[5].device_no],
        [rules[6].device_no, rules[7].device_no],
        [rules[0].device_no, rules[1].device_no],
        [rules[2].device_no, rules[3].device_no],
    ]
    assert all({one.device_no for one in step.rule_firings} == {one.device_no for one in step.rule_transitions} for step in steps)
    assert joined.in_steps(16) == [joined]


async def test_a_backlog_that_eats_deadlines_is_counted(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as app:
        rules = await add_rules(app, 3)
        link_of(app).listening.discard(rules[0].device_id)
        assert await app.program.workers.rule_timers.store_steps(all_fire(rules, app.clock.now_ms()))
        app.clock.forward(DEFAULT_TTL_MS + 1)
        assert not await app.services.dispatch.expire_batch()
        assert app.services.dispatch.expired_in_queue == 2  # the device that was away waited for itself


async def test_the_metric_of_the_alert_counts_a_backlog_that_eats_deadlines(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as app:
        rules = await add_rules(app, 3)
        assert await app.program.workers.rule_timers.store_steps(all_fire(rules, app.clock.now_ms()))
        app.clock.forward(DEFAULT_TTL_MS + 1)
        await app.program.workers.command_dispatch.run_once()
        assert "latchboard_commands_expired_in_queue_total 3.0" in app.program.metrics.render().decode()
