"""A rule that fires more than ten times within a minute is found, by what was committed and not by what was tried."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.kernel.errors import Unavailable
from domain.rules.model import Fired
from domain.rules.policy import SWEPT_AT, LoopGuard
from domain.telemetry.batch import PlainBatch
from domain.telemetry.ingest import Verdict
from support.telemetry_world import TelemetryWorld


def fired(*at_s: float, rule_no: int = 1) -> list[Fired]:
    return [Fired(1, rule_no, int(1_000 * second)) for second in at_s]


def found(guard: LoopGuard, firings: Sequence[Fired]) -> list[int]:
    circling = guard.circling(firings)
    guard.count(firings, circling)
    return [firings.index(one) for one in circling]


def test_ten_within_a_minute_are_fine_and_the_eleventh_is_not() -> None:
    guard = LoopGuard()
    assert found(guard, fired(*range(10))) == []
    assert found(guard, fired(59.9)) == [0]


def test_a_firing_counts_for_a_minute() -> None:
    guard = LoopGuard()
    assert found(guard, fired(*range(10))) == []
    assert found(guard, fired(*range(60, 70))) == []


def test_all_of_them_may_be_in_one_batch() -> None:
    assert found(LoopGuard(), fired(*range(12))) == [10, 11]


def test_what_was_weighed_and_not_committed_does_not_count() -> None:
    guard = LoopGuard()
    for _ in range(5):
        assert guard.circling(fired(*range(10))) == []
    assert found(guard, fired(*range(10))) == []


def test_a_rule_that_was_switched_off_begins_anew() -> None:
    guard = LoopGuard()
    assert found(guard, fired(*range(11))) == [10]
    assert found(guard, fired(*range(11, 21))) == []


def test_rules_that_fired_long_ago_take_no_memory() -> None:
    guard = LoopGuard()
    for rule_no in range(5 * SWEPT_AT):
        guard.count(fired(60 * rule_no, rule_no=rule_no), [])
    assert len(guard._recent) <= SWEPT_AT + 1


async def test_a_transaction_that_is_tried_again_does_not_bring_a_rule_nearer_to_being_disabled(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    rule = await world.rule(device)
    hot = PlainBatch.of([(device.device_no, world.clock.now_ms(), b'{"temperature": 31}')])
    verdict = Verdict.of(world.engine.ingest(hot))
    for _ in range(12):
        with pytest.raises(Unavailable):
            async with world.uow.write() as tx:
                await world.ingest.store(tx, verdict)
                raise Unavailable("The database is away.")
    await world.store(verdict)
    assert await world.commands_of(device) == ["OFF"]
    assert (await world.rules.get(world.session(), device.device_id, rule.rule_id)).enabled


async def test_a_tick_divides_into_the_devices_it_concerns(world: TelemetryWorld) -> None:
    pump, fan = await world.device(), await world.device()
    for device in (pump, fan):
        await world.report(device, temperature=20)
        await world.rule(device, for_seconds=60)
        await world.report(device, temperature=31)
    world.clock.forward(60_000)
    tick = Verdict.of(world.engine.tick(world.clock.now_ms()))
    parts = tick.by_device()
    assert [[one.device_no for one in part.fired] for part in parts] == [[pump.device_no], [fan.device_no]]
    for part in parts:
        await world.store(part)
    assert [await world.commands_of(device) for device in (pump, fan)] == [["OFF"], ["OFF"]]
