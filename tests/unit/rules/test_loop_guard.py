"""A rule that fires more than ten times within a minute is detected; only committed firings count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.ingest.results import IngestResult
from domain.kernel.errors import Unavailable
from domain.rules.loop_guard import SWEEP_THRESHOLD, RuleLoopGuard
from domain.rules.model import RuleFiring
from support.telemetry_world import TelemetryWorld


def fired(*at_s: float, rule_no: int = 1) -> list[RuleFiring]:
    return [RuleFiring(1, rule_no, int(1_000 * second)) for second in at_s]


def found(guard: RuleLoopGuard, firings: Sequence[RuleFiring]) -> list[int]:
    circling = guard.find_looping(firings)
    guard.record_firings(firings, circling)
    return [firings.index(one) for one in circling]


def test_ten_within_a_minute_are_fine_and_the_eleventh_is_not() -> None:
    guard = RuleLoopGuard()
    assert found(guard, fired(*range(10))) == []
    assert found(guard, fired(59.9)) == [0]


def test_a_firing_counts_for_a_minute() -> None:
    guard = RuleLoopGuard()
    assert found(guard, fired(*range(10))) == []
    assert found(guard, fired(*range(60, 70))) == []


def test_firings_before_the_clock_was_set_back_do_not_disable_a_rule() -> None:
    guard = RuleLoopGuard()
    assert found(guard, fired(*range(7_200, 7_210))) == []
    assert found(guard, fired(*range(3_600, 3_610))) == []
    assert found(guard, fired(3_611)) == [0]


def test_all_of_them_may_be_in_one_batch() -> None:
    assert found(RuleLoopGuard(), fired(*range(12))) == [10, 11]


def test_firings_that_were_not_committed_do_not_count() -> None:
    guard = RuleLoopGuard()
    for _ in range(5):
        assert guard.find_looping(fired(*range(10))) == []
    assert found(guard, fired(*range(10))) == []


def test_a_disabled_rule_starts_counting_from_zero() -> None:
    guard = RuleLoopGuard()
    assert found(guard, fired(*range(11))) == [10]
    assert found(guard, fired(*range(11, 21))) == []


def test_rules_that_fired_long_ago_take_no_memory() -> None:
    guard = RuleLoopGuard()
    for rule_no in range(5 * SWEEP_THRESHOLD):
        guard.record_firings(fired(60 * rule_no, rule_no=rule_no), [])
    assert len(guard._recent_firings_ms) <= SWEEP_THRESHOLD + 1


async def test_a_retried_transaction_counts_a_firing_once(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    decision = await world.ingest_all([(device.device_no, world.clock.now_ms(), b'{"temperature": 31}')])
    for _ in range(12):
        with pytest.raises(Unavailable):
            async with world.uow.write() as tx:
                await world.ingest.store(tx, decision)
                raise Unavailable("The database is away.")
    await world.store(decision)
    assert await world.commands_of(device) == ["OFF"]
    assert (await world.rules.get(world.session(), device.device_id, rule.rule_id)).enabled


async def test_a_tick_is_split_by_device(world: TelemetryWorld) -> None:
    pump, fan = await world.device(), await world.device()
    for device in (pump, fan):
        await world.report(device, temperature=20)
        await world.rule(device, for_seconds=60)
        await world.report(device, temperature=31)
    world.clock.forward(60_000)
    tick = IngestResult.of(world.engine.tick(world.clock.now_ms()))
    parts = tick.split()
    assert [[one.device_no for one in part.rule_firings] for part in parts] == [[pump.device_no], [fan.device_no]]
    for part in parts:
        await world.store(part)
    assert [await world.commands_of(device) for device in (pump, fan)] == [["OFF"], ["OFF"]]
