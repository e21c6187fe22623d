"""An edge runs once, at its second, or an event explains why not."""

from __future__ import annotations

from typing import Any

import pytest

from domain.devices.model import DeviceStatus
from domain.grants.model import GrantSubject
from domain.kernel.caller import Role
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId
from domain.schedules.firing import LONG_BATCH, SHORT_BATCH, SlotDecisionFailedError
from domain.schedules.model import EdgeOutcome, MisfirePolicy, ScheduledCommand, ScheduleStatus
from support.schedule_world import DAY, HOUR, MINUTE, NOW, ScheduleWorld


async def test_a_slot_switches_on_then_off_and_completes(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)
    assert await world.fire(NOW + 59) == 0
    await world.fire(NOW + 60)
    assert (await world.slot(device)).status is ScheduleStatus.ACTIVE
    await world.fire(NOW + 120)
    ended = await world.slot(device)
    assert (ended.status, ended.next_fire_ts, ended.last_outcome) == (ScheduleStatus.COMPLETED, None, EdgeOutcome.FIRED)
    assert await world.sent(device) == ["ON", "OFF"]
    assert world.fired() == [("on", 0), ("off", 0)]
    assert await world.fire(NOW + DAY) == 0


async def test_the_fired_event_names_slot_edge_command_and_delay(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    shown = await world.put(device, NOW + 60, NOW + 120, slot=3)
    await world.fire(NOW + 63)
    (emitted,) = world.events_of_kind("schedule_fired")
    assert (
        emitted.data.items()
        >= {"scheduleId": shown.schedule.schedule_id, "slot": 3, "edge": "on", "command": "ON", "lateSeconds": 3}.items()
    )
    assert (emitted.device_id, emitted.source) == (device.device_id, f"schedule:{shown.schedule.schedule_id}")
    assert (await world.slot(device, 3)).last_outcome is EdgeOutcome.FIRED_LATE


async def test_with_off_before_on_the_slot_begins_with_off(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 120, NOW + 60)
    await world.fire(NOW + 60)
    assert (await world.slot(device)).status is ScheduleStatus.PENDING
    await world.fire(NOW + 120)
    assert (await world.slot(device)).status is ScheduleStatus.COMPLETED
    assert await world.sent(device) == ["OFF", "ON"]


async def test_on_is_never_replayed_once_off_is_due(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)
    await world.fire(NOW + 180)
    assert await world.sent(device) == ["OFF"]
    assert world.fired() == [("off", 60)]
    assert world.skipped() == [("on", "SUPERSEDED")]
    assert (await world.slot(device)).status is ScheduleStatus.COMPLETED


async def test_a_missed_edge_runs_late_within_its_grace(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + DAY, misfire_grace_s=600)
    await world.fire(NOW + 60 + 600)
    assert world.fired() == [("on", 600)]


@pytest.mark.parametrize(
    ("misfire", "grace_s", "late_s"),
    [(MisfirePolicy.FIRE, 600, 601), (MisfirePolicy.SKIP, 600, 61), (MisfirePolicy.FIRE, 60, 61)],
)
async def test_an_edge_that_is_too_late_is_missed_and_logged(
    world: ScheduleWorld, misfire: MisfirePolicy, grace_s: int, late_s: int
) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + DAY, misfire=misfire, misfire_grace_s=grace_s)
    await world.fire(NOW + 60 + late_s)
    assert await world.sent(device) == []
    assert world.skipped() == [("on", "MISSED")]
    slot = await world.slot(device)
    assert (slot.status, slot.last_outcome, slot.last_fired_ms) == (ScheduleStatus.PENDING, EdgeOutcome.MISSED, None)
    assert slot.next_fire_ts == NOW + DAY


async def test_an_edge_that_the_clock_jumped_over_is_not_missed(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + DAY, misfire=MisfirePolicy.SKIP)
    await world.fire(NOW + HOUR, lateness_allowance_s=HOUR)
    assert await world.sent(device) == ["ON"]


async def test_a_clock_set_back_runs_nothing_twice(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 2 * HOUR, rrule="FREQ=DAILY")
    await world.fire(NOW + 60)
    for at_ts in range(NOW - HOUR, NOW + 2 * HOUR, 10 * MINUTE):
        await world.fire(at_ts)
    assert await world.sent(device) == ["ON"]


async def test_a_month_of_missed_days_becomes_one_edge(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + HOUR, rrule="FREQ=DAILY")
    await world.fire(NOW + 30 * DAY + 5 * MINUTE)
    assert world.fired() == [("on", 4 * MINUTE)]
    (emitted,) = world.events_of_kind("schedule_skipped")
    assert (emitted.data["reason"], emitted.data["edges"]) == ("SUPERSEDED", 60)
    assert (await world.slot(device)).next_fire_ts == NOW + 30 * DAY + HOUR


async def test_a_year_of_missed_minutes_is_skipped_quickly(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 90, rrule="FREQ=MINUTELY;INTERVAL=2")
    assert await world.fire(NOW + 365 * DAY) == 1
    assert (await world.slot(device)).next_fire_ts == NOW + 365 * DAY + 60


async def test_a_recurring_slot_ends_with_its_count(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120, rrule="FREQ=DAILY;COUNT=2")
    for day in range(4):
        await world.fire(NOW + day * DAY + 60)
        await world.fire(NOW + day * DAY + 120)
    assert await world.sent(device) == ["ON", "OFF"] * 2
    assert (await world.slot(device)).status is ScheduleStatus.COMPLETED


async def test_a_command_that_needs_approval_by_now_is_skipped_and_logged(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.define(device, "FLUSH")
    await world.put(device, NOW + 60, NOW + 120, on_command=ScheduledCommand("FLUSH"))
    await world.redefine(device, "FLUSH", requires_approval=True)
    await world.fire(NOW + 60)
    assert await world.sent(device) == []
    assert world.skipped() == [("on", "SKIPPED_APPROVAL")]
    assert (await world.slot(device)).next_fire_ts == NOW + 120


async def test_a_members_slot_does_not_run_without_the_grant(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    member = world.session(Role.MEMBER)
    grant = await world.grant(GrantSubject(membership_id=member.membership_id), device.device_id, ["ON", "OFF"])
    await world.put(device, NOW + 60, NOW + 120, role=Role.MEMBER)
    await world.fire(NOW + 60)
    await world.granting.delete(world.session(), device.device_id, grant.grant_id)
    await world.fire(NOW + 120)
    assert await world.sent(device) == ["ON"]
    assert world.skipped() == [("off", "SKIPPED_GRANT")]


async def test_a_slot_of_a_former_member_does_not_run(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120, role=Role.ADMIN)
    async with world.uow.write() as tx:
        await tx.memberships.delete(world.session(Role.ADMIN).membership_id)
    await world.fire(NOW + 60)
    assert await world.sent(device) == []
    assert world.skipped() == [("on", "SKIPPED_GRANT")]


async def test_a_disabled_device_is_not_switched(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)
    await world.devices.toggle_enabled(world.session(), device.device_id)
    assert (await world.stored(device.device_id)).status is DeviceStatus.DISABLED
    await world.fire(NOW + 60)
    assert world.skipped() == [("on", "SKIPPED_DEVICE")]


async def test_a_disabled_slot_does_not_run_and_does_not_catch_up(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + DAY + 120, enabled=False)
    assert await world.fire(NOW + 2 * HOUR) == 0
    await world.schedules.update(world.session(), device.device_id, 0, {"enabled": True})
    await world.fire()
    assert await world.sent(device) == []
    assert (await world.slot(device)).next_fire_ts == NOW + DAY + 120


async def test_an_offline_device_may_reconnect_for_an_edge_until_the_next_one(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 60, NOW + 360, misfire_grace_s=900)
    await world.fire(NOW + 60)
    async with world.uow.read() as tx:
        (execution,) = await tx.executions.list_open_by_device(device.device_id)
    assert execution.expires_ms == (NOW + 360) * 1000


async def test_an_offline_device_with_the_plan_has_the_edge_left_to_it(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 60, NOW + 360)
    async with world.uow.write() as tx:
        await world.plans.on_plan_revisions(tx, [(await world.stored(device.device_id), 1)])
    await world.fire(NOW + 60)
    assert await world.sent(device) == []
    assert world.fired() == []
    assert (await world.slot(device)).last_outcome is EdgeOutcome.LEFT_TO_DEVICE


async def test_a_crash_before_the_commit_leaves_the_edge_due(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)

    class Crashing:
        async def run_unattended(self, *args: Any) -> None:
            await world.commands.run_unattended(*args)
            raise Unavailable("the power went out")

    world.firing = world.make_firing(commands=Crashing())
    with pytest.raises(Unavailable):
        await world.fire(NOW + 60)
    assert await world.sent(device) == []
    world.firing = world.make_firing()
    await world.fire(NOW + 61)
    assert await world.sent(device) == ["ON"]


async def test_an_undecidable_slot_does_not_block_others(world: ScheduleWorld) -> None:
    bad, good = await world.device(online=True), await world.device(online=True)
    await world.put(bad, NOW + 60, NOW + 120)
    await world.put(good, NOW + 60, NOW + 120)

    class Faulty:
        async def run_unattended(self, tx: Any, automation_commands: Any, now_ms: int) -> Any:
            if bad.device_id in [command.request.device.device_id for command in automation_commands]:
                raise KeyError("a fault of ours")
            return await world.commands.run_unattended(tx, automation_commands, now_ms)

    world.firing = world.make_firing(commands=Faulty())
    with pytest.raises(SlotDecisionFailedError) as stuck:
        await world.fire(NOW + 60)
    await world.firing.quarantine(stuck.value.schedule, world.clock.now_ms())
    await world.fire()
    assert (await world.sent(bad), await world.sent(good)) == ([], ["ON"])
    assert (await world.slot(bad)).next_fire_ts == NOW + 120


async def test_due_slots_are_decided_in_batches(world: ScheduleWorld) -> None:
    devices = [await world.device(online=True) for _ in range(5)]
    for device in devices:
        await world.put(device, NOW + 60, NOW + 120)
    world.clock.ms = (NOW + 60) * 1000
    assert [await world.firing.fire_due(world.clock.now_ms(), limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_batch_is_short_where_others_wait_for_it_and_goes_behind_them(world: ScheduleWorld, monkeypatch: Any) -> None:
    assert world.firing.batch_size == SHORT_BATCH < LONG_BATCH
    for device in [await world.device(online=True) for _ in range(3)]:
        await world.put(device, NOW + 60, NOW + 120)
    world.clock.ms = (NOW + 60) * 1000
    asked: list[Any] = []
    write = world.uow.write
    monkeypatch.setattr(world.uow, "write", lambda **named: asked.append(named) or write(**named))
    assert await world.make_firing(batch_size=2).fire_due(world.clock.now_ms()) == 2
    assert asked == [{"caller": None, "background": True}]


async def test_a_slot_of_a_deleted_device_is_gone(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)
    async with world.uow.write() as tx:
        await tx.devices.delete(DeviceId(device.device_id), NOW)
    assert await world.fire(NOW + 60) == 0


async def test_an_edge_record_has_the_time_of_its_decision_not_of_its_batch(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)
    began_ms = (NOW + 60) * 1000
    world.clock.ms = began_ms + 350  # so long it waited for its turn
    await world.firing.fire_due(began_ms)
    (edge,) = await world.edges()
    assert (edge.due_ts, edge.at_ms) == (NOW + 60, began_ms + 350)
