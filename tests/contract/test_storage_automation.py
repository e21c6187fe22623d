"""Executions, schedules and rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from domain.commands.model import Execution, ExecutionStatus
from domain.devices.model import DeviceType
from domain.kernel.clock import TimeSpan
from domain.kernel.errors import Conflict
from domain.rules.model import RuleState, RuleTransition
from domain.schedules.model import (
    DecidedScheduleEdge,
    EdgeOutcome,
    OfflineScheduleEdge,
    Schedule,
    ScheduledCommand,
    ScheduleStatus,
    SwitchEdge,
)
from support.storage import NOW, StoredAccount, a_definition, a_device, a_rule, a_schedule, add_execution, an_execution, new_id


async def test_an_execution_comes_back_as_it_went_in_with_a_sequence(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        first = await add_execution(tx, an_execution(world, params={"level": 3}))
        second = await add_execution(tx, an_execution(world))
        assert 0 < first.seq < second.seq
        assert await tx.executions.get(world.account.account_id, first.execution_id) == first
        assert await tx.executions.find(second.execution_id) == second
        assert await tx.executions.get(new_id("acc"), first.execution_id) is None


async def test_an_execution_moves_on_from_the_status_its_caller_saw(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        queued = await add_execution(tx, an_execution(world))
        done = replace(queued, status=ExecutionStatus.DONE, sent_ms=NOW, finished_ms=NOW + 1, result={"relay": "ON", "n": 1.5})
        assert not await tx.executions.transition_many([(done, ExecutionStatus.SENT)])
        assert await tx.executions.find(queued.execution_id) == queued
        assert set(await tx.executions.transition_many([(done, ExecutionStatus.QUEUED)])) == {queued.execution_id}
        assert await tx.executions.find(queued.execution_id) == done


async def test_moves_are_recorded_without_an_answer_and_only_from_the_expected_status(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        queued, done = [await add_execution(tx, an_execution(world)) for _ in range(2)]
        await tx.executions.transition_many([(replace(done, status=ExecutionStatus.DONE), ExecutionStatus.QUEUED)])
    sent = [replace(one, status=ExecutionStatus.SENT, sent_ms=NOW) for one in (queued, done)]
    async with world.uow.write() as tx:
        await tx.executions.record_many([(one, ExecutionStatus.QUEUED) for one in sent])
        await tx.executions.record_many([])
    async with world.uow.read() as tx:
        assert await tx.executions.find(queued.execution_id) == sent[0]
        found = await tx.executions.find(done.execution_id)
        assert found is not None
        assert found.status is ExecutionStatus.DONE


async def test_many_executions_are_added_found_and_moved_together(world: StoredAccount) -> None:
    made = [an_execution(world, params={"n": number}) for number in range(5)]
    async with world.uow.write() as tx:
        await tx.executions.add_many(made)
        await tx.executions.add_many([])
    async with world.uow.write() as tx:
        stored = await tx.executions.list_queued(9)
        assert [replace(one, seq=0) for one in stored] == made
        assert [one.seq for one in stored] == sorted({one.seq for one in stored})
        wanted = {made[0].execution_id, made[3].execution_id, new_id("exe")}
        assert {one.execution_id for one in await tx.executions.list_by_ids(wanted)} == {
            made[0].execution_id,
            made[3].execution_id,
        }
        assert list(await tx.executions.list_by_ids(set())) == []
        sent = replace(stored[1], status=ExecutionStatus.SENT, sent_ms=NOW)
        done = replace(stored[2], status=ExecutionStatus.DONE, finished_ms=NOW + 1, result={"code": None, "data": ["x", 1.5]})
        late = replace(stored[4], status=ExecutionStatus.ACKED)
        moves = [(done, ExecutionStatus.QUEUED), (sent, ExecutionStatus.QUEUED), (late, ExecutionStatus.SENT)]
        assert set(await tx.executions.transition_many(moves)) == {sent.execution_id, done.execution_id}
        assert not await tx.executions.transition_many([])
        assert sorted(await tx.executions.list_by_ids({one.execution_id for one in stored}), key=lambda one: one.seq) == [
            stored[0],
            sent,
            done,
            stored[3],
            stored[4],
        ]


async def test_open_executions_are_counted_by_device(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        third = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        await tx.executions.add_many(
            [
                an_execution(world),
                an_execution(world, status=ExecutionStatus.SENT),
                an_execution(world, status=ExecutionStatus.ACKED),
                an_execution(world, device_id=other.device_id, device_no=other.device_no),
            ]
        )
        both = {world.device.device_id, other.device_id, third.device_id}
        assert dict(await tx.executions.count_open_by_device(both)) == {world.device.device_id: 2, other.device_id: 1}
        assert dict(await tx.executions.count_open_by_device({third.device_id})) == {}


async def test_definitions_of_devices_and_types_come_together(world: StoredAccount) -> None:
    kind = DeviceType(new_id("dty"), world.account.account_id, "Pump", NOW)
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        await tx.device_types.add(kind)
        mine, theirs = a_definition(world), a_definition(world, device_id=other.device_id)
        of_type = a_definition(world, device_id=None, device_type_id=kind.device_type_id)
        for definition in (mine, theirs, of_type):
            await tx.definitions.add(definition)
        assert list(await tx.definitions.list_by_devices_and_types({world.device.device_id}, set())) == [mine]
        assert list(await tx.definitions.list_by_devices_and_types({world.device.device_id}, {kind.device_type_id})) == [
            mine,
            of_type,
        ]
        assert list(await tx.definitions.list_by_devices_and_types(set(), set())) == []


async def test_what_was_written_for_later_is_there_for_the_next_statement_and_gone_with_its_transaction(
    world: StoredAccount,
) -> None:
    kept, lost = an_execution(world), an_execution(world)
    async with world.uow.write() as tx:
        await tx.executions.add_many([kept])
    try:
        async with world.uow.write() as tx:
            await tx.executions.add_many([lost])
            raise KeyError
    except KeyError:
        pass
    async with world.uow.write() as tx:
        await tx.executions.add_many([])
        assert [one.execution_id for one in await tx.executions.list_queued(9)] == [kept.execution_id]


async def test_a_later_write_that_the_database_refuses_takes_its_transaction_along_and_no_other(world: StoredAccount) -> None:
    kept = an_execution(world)
    orphan = an_execution(world, device_id=new_id("dev"))

    async def add(execution: Execution) -> None:
        async with world.uow.write() as tx:
            await tx.executions.add_many([execution])

    if world.uow.__class__.__name__ == "MemoryUnitOfWork":
        pytest.skip("dictionaries know no foreign keys")
    results = await asyncio.gather(add(orphan), add(kept), return_exceptions=True)
    assert isinstance(results[0], Conflict)
    assert results[1] is None
    async with world.uow.read() as tx:
        assert [one.execution_id for one in await tx.executions.list_queued(9)] == [kept.execution_id]


async def test_open_and_queued_executions_come_in_sequence(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        first = await add_execution(tx, an_execution(world))
        elsewhere = await add_execution(tx, an_execution(world, device_id=other.device_id, device_no=other.device_no))
        sent = await add_execution(tx, an_execution(world, status=ExecutionStatus.SENT))
        await add_execution(tx, an_execution(world, status=ExecutionStatus.DONE))
        assert list(await tx.executions.list_open_by_device(world.device.device_id)) == [first, sent]
        among = {world.device.device_id, other.device_id, new_id("dev")}
        assert await tx.executions.list_open_by_devices(among) == {
            world.device.device_id: [first, sent],
            other.device_id: [elsewhere],
        }
        assert list(await tx.executions.list_queued(9)) == [first, elsewhere]
        assert list(await tx.executions.list_queued(1)) == [first]
        assert list(await tx.executions.list_queued(9, first.seq)) == [elsewhere]
        assert list(await tx.executions.list_queued_by_account(first.account_id, 1)) == [first]
        assert list(await tx.executions.list_queued_by_account(first.account_id, 9, first.seq)) == [elsewhere]
        assert list(await tx.executions.list_queued_by_account(new_id("acc"), 9)) == []


async def test_overdue_executions_are_those_without_an_end(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert await tx.executions.next_expiry_ms() is None
        acked = await add_execution(tx, an_execution(world, status=ExecutionStatus.ACKED, expires_ms=NOW))
        queued = await add_execution(tx, an_execution(world, expires_ms=NOW - 1))
        await add_execution(tx, an_execution(world, expires_ms=NOW + 1))
        await add_execution(tx, an_execution(world, status=ExecutionStatus.FAILED, expires_ms=NOW - 9))
        assert list(await tx.executions.list_expired(NOW, 9)) == [queued, acked]
        assert list(await tx.executions.list_expired(NOW, 1)) == [queued]
        assert await tx.executions.next_expiry_ms() == NOW - 1


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_deadlines_move_along_when_the_clock_is_set(world: StoredAccount, step_ms: int) -> None:
    """Each has as long as it had, and never longer than in all; commands of the last minute are by the new time already."""
    then = NOW - step_ms
    async with world.uow.write() as tx:

        async def add(created_ms: int, ttl_ms: int, status: ExecutionStatus = ExecutionStatus.SENT) -> Execution:
            added = an_execution(world, status=status, created_ms=created_ms, expires_ms=created_ms + ttl_ms)
            return await add_execution(tx, added)

        half_over = await add(then - 30_000, 60_000)
        of_a_clock_ahead = await add(NOW + 7_200_000, 60_000)
        new = await add(NOW - 10, 60_000)
        ended = await add(then - 30_000, 60_000, ExecutionStatus.DONE)
        await tx.executions.shift_expiry(step_ms, NOW, NOW - 60_000)
        found = [await tx.executions.find(each.execution_id) for each in (half_over, of_a_clock_ahead, new, ended)]
        assert [each.expires_ms - NOW for each in found if each] == [30_000, 60_000, 59_990, ended.expires_ms - NOW]


async def test_what_is_queued_for_an_online_device_can_be_marked_as_possibly_sent(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        away = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        await tx.devices.set_online(world.device.device_id, True)
        queued = await add_execution(tx, an_execution(world))
        marked = await add_execution(tx, an_execution(world, sent_ms=NOW - 5))
        acked = await add_execution(tx, an_execution(world, status=ExecutionStatus.ACKED))
        elsewhere = await add_execution(tx, an_execution(world, device_id=away.device_id, device_no=away.device_no))
        assert await tx.executions.mark_possibly_sent(NOW) == 1
        found = [await tx.executions.find(one.execution_id) for one in (queued, marked, acked, elsewhere)]
        assert [one.sent_ms for one in found if one is not None] == [NOW, NOW - 5, acked.sent_ms, None]
        assert await tx.executions.mark_possibly_sent(NOW, {away.device_id, world.device.device_id}) == 1
        of_another = await tx.executions.find(elsewhere.execution_id)
        assert of_another is not None
        assert of_another.sent_ms == NOW


async def test_executions_page_newest_first_and_only_ended_ones_are_forgotten(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        stored = [
            await add_execution(tx, an_execution(world, status=status, created_ms=NOW + number))
            for number, status in enumerate([ExecutionStatus.DONE, ExecutionStatus.QUEUED, ExecutionStatus.EXPIRED])
        ]
        assert list(await tx.executions.page(world.device.device_id, limit=2)) == stored[:0:-1]
        assert (
            list(await tx.executions.page(world.device.device_id, limit=9, before=(stored[2].created_ms, stored[2].seq)))
            == stored[1::-1]
        )
        of_time = [
            list(await tx.executions.page(world.device.device_id, limit=9, created=span))
            for span in (TimeSpan(NOW + 1), TimeSpan(None, NOW + 1), TimeSpan(NOW + 1, NOW + 2))
        ]
        assert of_time == [stored[:0:-1], stored[:1], stored[1:2]]
        assert [await tx.executions.delete_older_than(NOW + 9, 1) for _ in range(3)] == [1, 1, 0]
        assert list(await tx.executions.page(world.device.device_id, limit=9)) == [stored[1]]


async def test_a_slot_holds_one_live_schedule(world: StoredAccount) -> None:
    first = a_schedule(world, on_command=ScheduledCommand("DIM", {"level": 3}), rrule="FREQ=DAILY")
    async with world.uow.write() as tx:
        await tx.schedules.add(first)
        assert await tx.schedules.get_by_slot(world.device.device_id, 0) == first
        assert await tx.schedules.get_by_slot(world.device.device_id, 1) is None
    with pytest.raises(Conflict) as caught:
        async with world.uow.write() as tx:
            await tx.schedules.add(a_schedule(world))
    assert caught.value.code == "SLOT_TAKEN"
    async with world.uow.write() as tx:
        await tx.schedules.save(replace(first, status=ScheduleStatus.CANCELLED, updated_ms=NOW + 1))
        second = a_schedule(world, slot=0)
        third = a_schedule(world, slot=3)
        await tx.schedules.add(third)
        await tx.schedules.add(second)
        assert list(await tx.schedules.list_active(world.device.device_id)) == [second, third]


async def test_history_has_the_ended_ones_newest_first(world: StoredAccount) -> None:
    ended = [
        a_schedule(world, status=status, updated_ms=NOW + at)
        for status, at in ((ScheduleStatus.COMPLETED, 1), (ScheduleStatus.CANCELLED, 9), (ScheduleStatus.COMPLETED, 5))
    ]
    async with world.uow.write() as tx:
        for schedule in (*ended, a_schedule(world)):
            await tx.schedules.add(schedule)
        assert list(await tx.schedules.list_history(world.device.device_id, 2)) == [ended[1], ended[2]]
        last = (await tx.schedules.list_history(world.device.device_id, 2))[-1]
        assert list(await tx.schedules.list_history(world.device.device_id, 2, (last.updated_ms, last.seq))) == [ended[0]]
        of_time = [
            list(await tx.schedules.list_history(world.device.device_id, 9, None, span))
            for span in (TimeSpan(NOW + 5), TimeSpan(None, NOW + 5), TimeSpan(NOW + 5, NOW + 9))
        ]
        assert of_time == [[ended[1], ended[2]], [ended[0]], [ended[2]]]
        await tx.schedules.save_decisions(
            [], [DecidedScheduleEdge(ended[0].schedule_id, 1, SwitchEdge.ON, 7, NOW, EdgeOutcome.FIRED)]
        )
        assert [await tx.schedules.delete_older_than(NOW + 6, 1) for _ in range(3)] == [1, 1, 0]
        assert list(await tx.schedules.list_history(world.device.device_id, 9)) == [ended[1]]
        assert len(await tx.schedules.list_active(world.device.device_id)) == 1


async def test_due_schedules_are_enabled_and_come_earliest_first(world: StoredAccount) -> None:
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
        assert list(await tx.schedules.list_due(200, 9)) == [late, soon]
        assert list(await tx.schedules.list_due(200, 1)) == [late]
        assert list(await tx.schedules.list_due(99, 9)) == []
        assert await tx.schedules.next_due_ts() == 100


async def test_slots_that_run_once_are_held_up_to_a_second(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        held, once, rule = (
            a_schedule(world, slot=slot, next_fire_ts=100 * (slot + 1), rrule="FREQ=DAILY" if slot == 2 else None)
            for slot in range(3)
        )
        for schedule in (held, once, rule):
            await tx.schedules.add(schedule)
        assert list(await tx.schedules.list_due(300, 9, 99)) == [held, once, rule]
        assert list(await tx.schedules.list_due(300, 9, 100)) == [once, rule]
        assert list(await tx.schedules.list_due(300, 9, 300)) == [rule]
        assert [await tx.schedules.next_due_ts(after_ts) for after_ts in (99, 100, 200, 999)] == [100, 200, 300, 300]


async def test_slots_with_a_rule_that_a_later_time_decided_are_found(world: StoredAccount) -> None:
    def daily(slot: int, **more: Any) -> Schedule:
        return a_schedule(world, slot=slot, rrule="FREQ=DAILY", **more)

    async with world.uow.write() as tx:
        ahead = [daily(slot, updated_ms=NOW + 10 + slot) for slot in range(2)]
        for schedule in (
            *ahead,
            daily(2, updated_ms=NOW + 9),
            a_schedule(world, slot=3, updated_ms=NOW + 20),
            daily(4, updated_ms=NOW + 20, status=ScheduleStatus.CANCELLED),
            ended := daily(4, updated_ms=NOW + 20, status=ScheduleStatus.COMPLETED),
        ):
            await tx.schedules.add(schedule)
        assert list(await tx.schedules.list_decided_after(NOW + 9, 9)) == [*ahead, ended]
        assert list(await tx.schedules.list_decided_after(NOW + 9, 1)) == ahead[:1]
        assert list(await tx.schedules.list_decided_after(NOW + 20, 9)) == []


async def test_recorded_edges_are_found_from_a_second_on(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        first, second = a_schedule(world, slot=0), a_schedule(world, slot=1)
        edges = [
            DecidedScheduleEdge(
                one.schedule_id, 1, edge, due_ts, NOW, EdgeOutcome.SUPERSEDED if due_ts == 100 else EdgeOutcome.FIRED
            )
            for one, edge, due_ts in ((first, SwitchEdge.ON, 100), (first, SwitchEdge.OFF, 200), (second, SwitchEdge.ON, 200))
        ]
        for one in (first, second):
            await tx.schedules.add(one)
        await tx.schedules.save_decisions([first, second], edges)
        both = {first.schedule_id, second.schedule_id}
        found = set(await tx.schedules.list_decided_edges(both, 200))
        assert found == {(first.schedule_id, 1, SwitchEdge.OFF, 200), (second.schedule_id, 1, SwitchEdge.ON, 200)}
        assert len(await tx.schedules.list_decided_edges({first.schedule_id}, 100)) == 2
        assert list(await tx.schedules.list_decided_edges((), 0)) == []
        await tx.schedules.forget_skipped_edges({first.schedule_id}, 101)
        assert len(await tx.schedules.list_decided_edges(both, 0)) == 3
        await tx.schedules.forget_skipped_edges({second.schedule_id}, 0)
        await tx.schedules.forget_skipped_edges({first.schedule_id}, 100)
        assert set(await tx.schedules.list_decided_edges(both, 0)) == found


async def test_what_became_of_many_slots_is_written_together(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        slots = [a_schedule(world, slot=number) for number in range(3)]
        for slot in slots:
            await tx.schedules.add(slot)
        decided = [
            replace(
                slot,
                status=ScheduleStatus.ACTIVE,
                next_fire_ts=slot.off_ts,
                next_edge=SwitchEdge.OFF,
                last_fired_ms=NOW + 1,
                last_outcome=EdgeOutcome.FIRED,
                updated_ms=NOW + 1,
            )
            for slot in slots[:2]
        ]
        edges = [
            DecidedScheduleEdge(slot.schedule_id, 1, SwitchEdge.ON, slot.on_ts, NOW, EdgeOutcome.FIRED) for slot in slots[:2]
        ]
        await tx.schedules.save_decisions(decided, edges)
    async with world.uow.write() as tx:
        assert list(await tx.schedules.list_active(world.device.device_id)) == [*decided, slots[2]]
        assert list(await tx.schedules.list_active_by_devices({world.device.device_id, new_id("dev")})) == [*decided, slots[2]]

    async def again() -> None:
        async with world.uow.write() as tx:
            await tx.schedules.save_decisions([slots[0]], [edges[0]])

    with pytest.raises(Conflict):
        await again()
    async with world.uow.read() as tx:
        assert await tx.schedules.get_by_slot(world.device.device_id, 0) == decided[0]


async def test_an_edge_is_recorded_once(world: StoredAccount) -> None:
    schedule = a_schedule(world)
    fired = DecidedScheduleEdge(schedule.schedule_id, 1, SwitchEdge.ON, 100, NOW, EdgeOutcome.FIRED)

    async def record(edge: DecidedScheduleEdge) -> None:
        async with world.uow.write() as tx:
            await tx.schedules.save_decisions([], [edge])

    async with world.uow.write() as tx:
        await tx.schedules.add(schedule)
    await record(fired)
    for same in (fired, replace(fired, at_ms=NOW + 5)):
        with pytest.raises(Conflict):
            await record(same)
    for other in (replace(fired, edge=SwitchEdge.OFF), replace(fired, revision=2), replace(fired, due_ts=101)):
        await record(other)


async def test_rules_get_numbers_in_order_and_come_back_as_they_went_in(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        first = await tx.rules.add(a_rule(world, priority=200))
        second = await tx.rules.add(a_rule(world, state=RuleState(True, NOW, NOW - 1), disabled_reason="loop", enabled=False))
        assert 0 < first.rule_no < second.rule_no
        assert list(await tx.rules.list_by_device(world.device.device_id)) == [second, first]
        assert await tx.rules.get(world.device.device_id, second.rule_id) == second
        assert await tx.rules.get(new_id("dev"), second.rule_id) is None
        assert await tx.rules.find_by_number(first.rule_no) == first
        assert list(await tx.rules.list_by_numbers([first.rule_no, 999_999])) == [first]
        changed = replace(first, name="renamed", clear_conditions=(), revision=2)
        await tx.rules.save(changed)
        assert await tx.rules.find_by_number(first.rule_no) == changed
        await tx.rules.delete(first.rule_id)
        assert await tx.rules.find_by_number(first.rule_no) is None


async def test_an_edit_leaves_a_rules_state_to_the_engine_and_arming_it_anew_keeps_when_it_last_fired(
    world: StoredAccount,
) -> None:
    async with world.uow.write() as tx:
        rule = await tx.rules.add(a_rule(world))
        await tx.rules.save_states([RuleTransition(world.device.device_no, rule.rule_no, NOW, True, None, NOW, True)])
        await tx.rules.save(replace(rule, name="read before it matched"))
        kept = await tx.rules.find_by_number(rule.rule_no)
        assert (kept.name, kept.state) == ("read before it matched", RuleState(True, None, NOW))
        await tx.rules.rearm(rule.rule_id)
        assert (await tx.rules.find_by_number(rule.rule_no)).state == RuleState(False, None, NOW)


async def test_rule_states_are_written_together(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        first = await tx.rules.add(a_rule(world))
        second = await tx.rules.add(a_rule(world))
        number = world.device.device_no
        await tx.rules.save_states(
            [
                RuleTransition(number, first.rule_no, NOW, True, None, NOW, True),
                RuleTransition(number, 999_999, NOW, True, None, NOW, True),
                RuleTransition(number, second.rule_no, NOW, False, NOW + 1, None, False),
            ]
        )
        await tx.rules.save_states([])
        assert (await tx.rules.find_by_number(first.rule_no)).state == RuleState(True, None, NOW)
        assert (await tx.rules.find_by_number(second.rule_no)).state == RuleState(False, NOW + 1, None)


async def test_enabled_rules_of_all_devices_come_by_device(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        second = await tx.rules.add(a_rule(world, device_id=other.device_id, device_no=other.device_no))
        first = await tx.rules.add(a_rule(world))
        await tx.rules.add(a_rule(world, enabled=False))
        assert list(await tx.rules.list_enabled()) == [first, second]


async def test_left_edges_are_taken_once_and_mark_their_device(world: StoredAccount) -> None:
    device, slot = world.device, a_schedule(world, slot=3)
    left = [
        OfflineScheduleEdge(slot.schedule_id, device.device_id, 1, SwitchEdge.ON, 100, 7, 200),
        OfflineScheduleEdge(slot.schedule_id, device.device_id, 1, SwitchEdge.OFF, 200, 7, None),
    ]
    records = [DecidedScheduleEdge(slot.schedule_id, 1, e.edge, e.due_ts, NOW, EdgeOutcome.LEFT_TO_DEVICE) for e in left]
    async with world.uow.write() as tx:
        await tx.schedules.add(slot)
        await tx.schedules.save_decisions([slot], records)
        await tx.schedules.add_left(left)
    async with world.uow.write() as tx:
        assert list(await tx.schedules.list_left_to_resolve(9)) == []
        await tx.devices.set_online(device.device_id, True)
        await tx.schedules.set_plan_held(left[:1], False)
        await tx.schedules.set_resolve_time(left[:1], NOW)
        left[0] = replace(left[0], holds_plan=False, resolve_ms=NOW)
        assert list(await tx.schedules.list_left_to_resolve(9)) == [left[1], left[0]]
        found = await tx.devices.find(device.device_id)
        assert found is not None
        assert found.has_left_edges
    async with world.uow.write() as tx:
        assert list(await tx.schedules.take_left(left[:1])) == left[:1]
        assert list(await tx.schedules.take_left(left)) == left[1:]
        found = await tx.devices.find(device.device_id)
        assert found is not None
        assert not found.has_left_edges
        done = replace(slot, last_outcome=EdgeOutcome.RAN_ON_DEVICE, last_fired_ms=NOW)
        await tx.schedules.save_resolved(done, replace(records[0], outcome=EdgeOutcome.RAN_ON_DEVICE, at_ms=NOW + 1))
        assert list(await tx.schedules.list_by_ids({slot.schedule_id, new_id("sched")})) == [done]
        assert list(await tx.schedules.list_left_by_devices({device.device_id})) == []


async def test_a_slot_is_withdrawn_and_given_back_and_nothing_else_of_it_changes(world: StoredAccount) -> None:
    slot, other = a_schedule(world), a_schedule(world, slot=1)
    async with world.uow.write() as tx:
        await tx.schedules.add(slot)
        await tx.schedules.add(other)
        await tx.schedules.set_withdrawn([slot.schedule_id], True)
    async with world.uow.read() as tx:
        assert await tx.schedules.list_active(world.device.device_id) == [replace(slot, withdrawn=True), other]
    async with world.uow.write() as tx:
        await tx.schedules.set_withdrawn([slot.schedule_id], False)
    async with world.uow.read() as tx:
        assert await tx.schedules.list_active(world.device.device_id) == [slot, other]
