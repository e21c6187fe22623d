"""Executions, schedules and rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.commands.model import ExecutionStatus
from domain.kernel.errors import Conflict
from domain.rules.model import RuleEdge, RuleState
from domain.schedules.model import Edge, FiredEdge, Outcome, ScheduleStatus, SlotCommand
from support.storage import NOW, World, a_device, a_rule, a_schedule, an_execution, new


async def test_an_execution_comes_back_as_it_went_in_with_a_sequence(world: World) -> None:
    async with world.uow.write() as tx:
        first = await tx.executions.add(an_execution(world, params={"level": 3}))
        second = await tx.executions.add(an_execution(world))
        assert 0 < first.seq < second.seq
        assert await tx.executions.get(world.account.account_id, first.execution_id) == first
        assert await tx.executions.find(second.execution_id) == second
        assert await tx.executions.get(new("acc"), first.execution_id) is None


async def test_an_execution_moves_on_from_the_status_its_caller_saw(world: World) -> None:
    async with world.uow.write() as tx:
        queued = await tx.executions.add(an_execution(world))
        done = replace(queued, status=ExecutionStatus.DONE, sent_ms=NOW, finished_ms=NOW + 1, result={"relay": "ON", "n": 1.5})
        assert not await tx.executions.advance(done, ExecutionStatus.SENT)
        assert await tx.executions.find(queued.execution_id) == queued
        assert await tx.executions.advance(done, ExecutionStatus.QUEUED)
        assert await tx.executions.find(queued.execution_id) == done


async def test_open_and_queued_executions_come_in_sequence(world: World) -> None:
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        first = await tx.executions.add(an_execution(world))
        elsewhere = await tx.executions.add(an_execution(world, device_id=other.device_id, device_no=other.device_no))
        sent = await tx.executions.add(an_execution(world, status=ExecutionStatus.SENT))
        await tx.executions.add(an_execution(world, status=ExecutionStatus.DONE))
        assert list(await tx.executions.open_of(world.device.device_id)) == [first, sent]
        assert list(await tx.executions.queued(9)) == [first, elsewhere]
        assert list(await tx.executions.queued(1)) == [first]
        assert list(await tx.executions.queued(9, first.seq)) == [elsewhere]


async def test_overdue_executions_are_those_without_an_end(world: World) -> None:
    async with world.uow.write() as tx:
        assert await tx.executions.next_expiry_ms() is None
        acked = await tx.executions.add(an_execution(world, status=ExecutionStatus.ACKED, expires_ms=NOW))
        queued = await tx.executions.add(an_execution(world, expires_ms=NOW - 1))
        await tx.executions.add(an_execution(world, expires_ms=NOW + 1))
        await tx.executions.add(an_execution(world, status=ExecutionStatus.FAILED, expires_ms=NOW - 9))
        assert list(await tx.executions.overdue(NOW, 9)) == [queued, acked]
        assert list(await tx.executions.overdue(NOW, 1)) == [queued]
        assert await tx.executions.next_expiry_ms() == NOW - 1


async def test_executions_page_newest_first_and_only_ended_ones_are_forgotten(world: World) -> None:
    async with world.uow.write() as tx:
        stored = [
            await tx.executions.add(an_execution(world, status=status, created_ms=NOW + number))
            for number, status in enumerate([ExecutionStatus.DONE, ExecutionStatus.QUEUED, ExecutionStatus.EXPIRED])
        ]
        assert list(await tx.executions.page(world.device.device_id, limit=2)) == stored[:0:-1]
        assert list(await tx.executions.page(world.device.device_id, limit=9, before_seq=stored[2].seq)) == stored[1::-1]
        assert [await tx.executions.forget_before(NOW + 9, 1) for _ in range(3)] == [1, 1, 0]
        assert list(await tx.executions.page(world.device.device_id, limit=9)) == [stored[1]]


async def test_a_slot_holds_one_live_schedule(world: World) -> None:
    first = a_schedule(world, on_command=SlotCommand("DIM", {"level": 3}), rrule="FREQ=DAILY")
    async with world.uow.write() as tx:
        await tx.schedules.add(first)
        assert await tx.schedules.in_slot(world.device.device_id, 0) == first
        assert await tx.schedules.in_slot(world.device.device_id, 1) is None
    async with world.uow.write() as tx:
        with pytest.raises(Conflict) as caught:
            await tx.schedules.add(a_schedule(world))
        assert caught.value.code == "SLOT_TAKEN"
    async with world.uow.write() as tx:
        await tx.schedules.save(replace(first, status=ScheduleStatus.CANCELLED, updated_ms=NOW + 1))
        second = a_schedule(world, slot=0)
        third = a_schedule(world, slot=3)
        await tx.schedules.add(third)
        await tx.schedules.add(second)
        assert list(await tx.schedules.active(world.device.device_id)) == [second, third]


async def test_history_has_the_ended_ones_newest_first(world: World) -> None:
    ended = [
        a_schedule(world, status=status, updated_ms=NOW + at)
        for status, at in ((ScheduleStatus.COMPLETED, 1), (ScheduleStatus.CANCELLED, 9), (ScheduleStatus.COMPLETED, 5))
    ]
    async with world.uow.write() as tx:
        for schedule in (*ended, a_schedule(world)):
            await tx.schedules.add(schedule)
        assert list(await tx.schedules.history(world.device.device_id, 2)) == [ended[1], ended[2]]
        await tx.schedules.record_edge(FiredEdge(ended[0].schedule_id, 1, Edge.ON, 7, NOW, Outcome.FIRED))
        assert [await tx.schedules.forget_before(NOW + 6, 1) for _ in range(3)] == [1, 1, 0]
        assert list(await tx.schedules.history(world.device.device_id, 9)) == [ended[1]]
        assert len(await tx.schedules.active(world.device.device_id)) == 1


async def test_due_schedules_are_enabled_and_come_earliest_first(world: World) -> None:
    async with world.uow.write() as tx:
        assert await tx.schedules.next_due_ts() is None
        late, soon = a_schedule(world, slot=1, next_fire_ts=100), a_schedule(world, slot=0, next_fire_ts=200)
        for schedule in (
            soon,
            late,
            a_schedule(world, slot=2, next_fire_ts=50, enabled=False),
            a_schedule(world, slot=3, next_fire_ts=None, next_edge=None),
            a_schedule(world, slot=4, next_fire_ts=50, status=ScheduleStatus.CANCELLED),
        ):
            await tx.schedules.add(schedule)
        assert list(await tx.schedules.due(200, 9)) == [late, soon]
        assert list(await tx.schedules.due(200, 1)) == [late]
        assert list(await tx.schedules.due(99, 9)) == []
        assert await tx.schedules.next_due_ts() == 100


async def test_an_edge_is_recorded_once(world: World) -> None:
    schedule = a_schedule(world)
    fired = FiredEdge(schedule.schedule_id, 1, Edge.ON, 100, NOW, Outcome.FIRED)
    async with world.uow.write() as tx:
        await tx.schedules.add(schedule)
        assert await tx.schedules.record_edge(fired)
        assert not await tx.schedules.record_edge(fired)
        assert not await tx.schedules.record_edge(replace(fired, at_ms=NOW + 5))
        for other in (replace(fired, edge=Edge.OFF), replace(fired, revision=2), replace(fired, due_ts=101)):
            assert await tx.schedules.record_edge(other)


async def test_rules_get_numbers_in_order_and_come_back_as_they_went_in(world: World) -> None:
    async with world.uow.write() as tx:
        first = await tx.rules.add(a_rule(world, priority=200))
        second = await tx.rules.add(a_rule(world, state=RuleState(True, NOW, NOW - 1), disabled_reason="loop", enabled=False))
        assert 0 < first.rule_no < second.rule_no
        assert list(await tx.rules.list(world.device.device_id)) == [second, first]
        assert await tx.rules.get(world.device.device_id, second.rule_id) == second
        assert await tx.rules.get(new("dev"), second.rule_id) is None
        assert await tx.rules.by_no(first.rule_no) == first
        changed = replace(first, name="renamed", clear_conditions=(), revision=2)
        await tx.rules.save(changed)
        assert await tx.rules.by_no(first.rule_no) == changed
        await tx.rules.delete(first.rule_id)
        assert await tx.rules.by_no(first.rule_no) is None


async def test_rule_states_are_written_together(world: World) -> None:
    async with world.uow.write() as tx:
        first = await tx.rules.add(a_rule(world))
        second = await tx.rules.add(a_rule(world))
        number = world.device.device_no
        await tx.rules.save_states(
            [
                RuleEdge(number, first.rule_no, NOW, True, None, NOW, True),
                RuleEdge(number, 999_999, NOW, True, None, NOW, True),
                RuleEdge(number, second.rule_no, NOW, False, NOW + 1, None, False),
            ]
        )
        await tx.rules.save_states([])
        assert (await tx.rules.by_no(first.rule_no)).state == RuleState(True, None, NOW)
        assert (await tx.rules.by_no(second.rule_no)).state == RuleState(False, NOW + 1, None)


async def test_enabled_rules_of_all_devices_come_by_device(world: World) -> None:
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        second = await tx.rules.add(a_rule(world, device_id=other.device_id, device_no=other.device_no))
        first = await tx.rules.add(a_rule(world))
        await tx.rules.add(a_rule(world, enabled=False))
        assert list(await tx.rules.all_enabled()) == [first, second]
