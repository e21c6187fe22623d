"""Create, change and cancel slots, with the validation errors; and the calendar of planned switches."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from domain.devices.model import Device, FirmwareProfile
from domain.grants.model import GrantSubject
from domain.kernel.caller import Role
from domain.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from domain.schedules import service
from domain.schedules.model import MisfirePolicy, ScheduledCommand, ScheduleStatus, SwitchEdge
from domain.schedules.service import ScheduleOccurrenceService
from support.schedule_world import DAY, HOUR, MINUTE, NOW, ScheduleWorld


async def edit(world: ScheduleWorld, device: Any, slot: int = 0, **changes: Any) -> Any:
    return await world.schedules.update(world.session(), device.device_id, slot, changes)


async def test_a_new_slot_waits_for_its_first_edge(world: ScheduleWorld) -> None:
    device = await world.device()
    schedule = (await world.put(device, NOW + 60, NOW + 120, label="Morning")).schedule
    assert (schedule.status, schedule.revision, schedule.label) == (ScheduleStatus.PENDING, 1, "Morning")
    assert (schedule.next_fire_ts, schedule.next_edge) == (NOW + 60, SwitchEdge.ON)
    assert schedule.created_by == world.session().membership_id


async def test_replacing_a_slot_cancels_what_it_held(world: ScheduleWorld) -> None:
    device = await world.device()
    first = (await world.put(device, NOW + 60, NOW + 120)).schedule
    second = (await world.put(device, NOW + 300, NOW + 400)).schedule
    listed = await world.schedules.list(world.session(), device.device_id)
    history = await world.schedules.list_history(world.session(), device.device_id)
    assert [shown.schedule.schedule_id for shown in listed] == [second.schedule_id]
    assert [(s.schedule.schedule_id, s.schedule.status) for s in history] == [(first.schedule_id, ScheduleStatus.CANCELLED)]
    await world.fire(NOW + 300)
    assert await world.sent(device) == ["ON"]


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"on_ts": NOW * 1000, "off_ts": NOW + 60}, "onTs"),
        ({"on_ts": NOW + 60, "off_ts": 10**11}, "offTs"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 60}, "offTs"),
        ({"on_ts": 0, "off_ts": NOW + 60}, "onTs"),
        ({"on_ts": NOW - 120, "off_ts": NOW - 60}, "onTs"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 90, "label": "x" * 65}, "label"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 90, "timezone": "Mars/Base"}, "timezone"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 90, "misfire_grace_s": 59}, "misfireGraceSeconds"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 90, "rrule": "FREQ=SECONDLY"}, "rrule"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 90, "on_command": ScheduledCommand("FLY")}, "onCommand.command"),
        ({"on_ts": NOW + 60, "off_ts": NOW + 90, "off_command": ScheduledCommand("OFF", {"x": 1})}, "offCommand.params"),
    ],
)
async def test_every_invalid_field_of_a_slot_is_named(world: ScheduleWorld, terms: dict[str, Any], field: str) -> None:
    device = await world.device()
    with pytest.raises(ValidationFailed) as refused:
        await world.put(device, **terms)
    assert field in [fault.field for fault in refused.value.details]


async def test_milliseconds_are_rejected_with_an_explanation(world: ScheduleWorld) -> None:
    device = await world.device()
    with pytest.raises(ValidationFailed, match="looks like milliseconds"):
        await world.put(device, NOW * 1000, NOW * 1000 + 1)


@pytest.mark.parametrize("slot", [-1, 5])
async def test_there_are_five_slots(world: ScheduleWorld, slot: int) -> None:
    device = await world.device()
    with pytest.raises(ValidationFailed, match="slot"):
        await world.put(device, NOW + 60, NOW + 90, slot=slot)


async def test_a_command_that_needs_approval_cannot_be_scheduled(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.define(device, "OFF", requires_approval=True)
    with pytest.raises(ValidationFailed) as refused:
        await world.put(device, NOW + 60, NOW + 90)
    assert (refused.value.code, refused.value.details[0].field) == ("COMMAND_NEEDS_APPROVAL", "offCommand.command")


async def test_a_member_needs_a_grant_for_both_commands(world: ScheduleWorld) -> None:
    device = await world.device()
    subject = GrantSubject(membership_id=world.session(Role.MEMBER).membership_id)
    await world.grant(subject, device.device_id, ["ON"])
    with pytest.raises(PermissionDenied) as refused:
        await world.put(device, NOW + 60, NOW + 90, role=Role.MEMBER)
    assert refused.value.code == "COMMAND_NOT_GRANTED"
    await world.grant(subject, device.device_id, ["OFF"])
    await world.put(device, NOW + 60, NOW + 90, role=Role.MEMBER)


async def test_a_slot_may_be_set_outside_the_grants_window(world: ScheduleWorld) -> None:
    device = await world.device()
    subject = GrantSubject(membership_id=world.session(Role.MEMBER).membership_id)
    await world.grant(subject, device.device_id, ["ON", "OFF"], rate_limit_per_minute=1)
    world.windows.open = False
    await world.put(device, NOW + 60, NOW + 90, role=Role.MEMBER)


async def test_a_viewer_sets_nothing(world: ScheduleWorld) -> None:
    device = await world.device()
    with pytest.raises(PermissionDenied, match="Member"):
        await world.put(device, NOW + 60, NOW + 90, role=Role.VIEWER)


async def test_a_slot_saved_between_its_edges_runs_the_first_late(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW - 30, NOW + HOUR)
    await world.fire()
    assert world.fired() == [("on", 30)]


async def test_a_daily_slot_saved_after_todays_end_waits_for_tomorrow(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW - 10 * MINUTE, NOW - MINUTE, rrule="FREQ=DAILY")
    await world.fire()
    assert await world.sent(device) == []
    assert (await world.slot(device)).next_fire_ts == NOW - 10 * MINUTE + DAY


async def test_an_edge_that_ran_does_not_run_again_for_a_later_off(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 300)
    await world.fire(NOW + 60)
    shown = await edit(world, device, off_ts=NOW + 400)
    assert (shown.schedule.status, shown.schedule.revision) == (ScheduleStatus.ACTIVE, 2)
    await world.fire(NOW + 61)
    await world.fire(NOW + 400)
    assert await world.sent(device) == ["ON", "OFF"]


@pytest.mark.parametrize("fired_first", [True, False])
async def test_replacing_a_slot_at_its_due_second_gives_one_edge(world: ScheduleWorld, fired_first: bool) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 300)
    world.clock.ms = (NOW + 60) * 1000
    if fired_first:
        await world.fire()
    await world.put(device, NOW + 60, NOW + 300)
    await world.fire()
    assert await world.sent(device) == ["ON"]


async def test_changing_the_label_keeps_the_slots_state(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    before = (await world.put(device, NOW + 60, NOW + 300)).schedule
    after = (await edit(world, device, label="Dawn", misfire=MisfirePolicy.SKIP)).schedule
    assert (after.revision, after.next_fire_ts, after.label) == (before.revision, before.next_fire_ts, "Dawn")
    assert after.schedule_id == before.schedule_id


async def test_new_times_restart_an_active_slot(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 300)
    await world.fire(NOW + 60)
    shown = await edit(world, device, on_ts=NOW + DAY, off_ts=NOW + DAY + 60)
    assert (shown.schedule.status, shown.schedule.next_fire_ts) == (ScheduleStatus.PENDING, NOW + DAY)


async def test_an_empty_slot_is_filled_only_by_both_times(world: ScheduleWorld) -> None:
    device = await world.device()
    with pytest.raises(NotFound, match="Slot 2"):
        await edit(world, device, 2, on_ts=NOW + 60)
    shown = await edit(world, device, 2, on_ts=NOW + 60, off_ts=NOW + 90)
    assert shown.schedule.slot == 2


async def test_a_cancelled_slot_does_not_run(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 300)
    await world.fire(NOW + 60)
    await world.schedules.cancel(world.session(), device.device_id, 0)
    await world.fire(NOW + 300)
    assert await world.sent(device) == ["ON"]
    with pytest.raises(NotFound):
        await world.schedules.cancel(world.session(), device.device_id, 0)


async def test_commands_that_need_approval_are_not_offered_for_slots(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.define(device, "FLUSH", requires_approval=True)
    await world.define(device, "DIM")
    names = [one.name for one in await world.schedules.list_schedulable_commands(world.session(), device.device_id)]
    assert "DIM" in names
    assert "FLUSH" not in names


async def test_saving_wakes_the_schedule_worker(world: ScheduleWorld) -> None:
    device = await world.device()
    before = world.wake_event.rings
    await world.put(device, NOW + 60, NOW + 300)
    assert world.wake_event.rings > before


async def test_plain_slots_are_planned_for_the_device_and_others_are_not(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 60, NOW + 300)
    await world.put(device, NOW + 60, NOW + 300, slot=1, rrule="FREQ=DAILY")
    await world.put(device, NOW + 60, NOW + 300, slot=2, off_command=ScheduledCommand("STATUS"))
    await world.put(device, NOW + 60, NOW + 300, slot=3, enabled=False)
    world.link.listening.add(device.device_id)
    await world.plans.publish_plan(device.device_id)
    (reported,) = world.link.sent
    assert reported.topic == "sched"
    plan = f'{{"rev":2,"s":[[0,{NOW + 60},{NOW + 300},true],[3,{NOW + 60},{NOW + 300},false]]}}'
    assert reported.payload.decode() == plan


async def test_a_slot_is_synced_once_the_device_reports_the_revision(world: ScheduleWorld) -> None:
    device = await world.device()
    assert (await world.put(device, NOW + 60, NOW + 300)).firmware_synced is False
    assert world.marked == [device.device_id]
    async with world.uow.write() as tx:
        await world.plans.on_plan_revisions(tx, [(await world.stored(device.device_id), 1)])
    (shown,) = await world.schedules.list(world.session(), device.device_id)
    assert shown.firmware_synced is True
    assert (await edit(world, device, label="Dawn")).firmware_synced is True
    assert (await edit(world, device, off_ts=NOW + 400)).firmware_synced is False


async def test_a_device_with_another_revision_gets_the_plan_at_most_once_a_minute(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 60, NOW + 300)
    world.marked.clear()
    for _ in range(3):
        async with world.uow.write() as tx:
            await world.plans.on_plan_revisions(tx, [(await world.stored(device.device_id), 99)])
    assert world.marked == [device.device_id]
    world.clock.forward(60_000)
    async with world.uow.write() as tx:
        await world.plans.on_plan_revisions(tx, [(await world.stored(device.device_id), 99)])
    assert world.marked == [device.device_id] * 2


async def test_a_firmware_without_schedules_gets_no_plan(world: ScheduleWorld) -> None:
    device = await world.device(profile=FirmwareProfile.ESPHOME)
    assert (await world.put(device, NOW + 60, NOW + 300)).firmware_synced is False
    assert world.marked == []


async def test_a_slot_that_ended_leaves_the_plan(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 120)
    await world.fire(NOW + 60)
    await world.fire(NOW + 120)
    assert (await world.stored(device.device_id)).sched_rev == 2
    assert await world.plans.list_devices_with_plans() == [device.device_id]


async def sent_to(world: ScheduleWorld, device: Device) -> Device:
    """The device confirms the plan it has been told."""
    async with world.uow.write() as tx:
        fresh = await tx.devices.find(device.device_id)
        await world.plans.on_plan_revisions(tx, [(fresh, fresh.sched_rev)])
    return fresh


@pytest.mark.parametrize(
    ("profile", "on_ts", "off_ts", "held"),
    [
        (FirmwareProfile.TASMOTA, MINUTE * 10, HOUR, True),
        (FirmwareProfile.TASMOTA, MINUTE * 10 + 1, HOUR, False),  # its timers know no seconds
        (FirmwareProfile.TASMOTA, MINUTE * 10, 7 * DAY, False),  # nor more than a week
        (FirmwareProfile.SHELLY, MINUTE * 10 + 1, 7 * DAY, True),
        (FirmwareProfile.SHELLY, MINUTE * 10, 301 * DAY, False),
    ],
)
async def test_stock_firmware_holds_what_its_timers_can_express(
    world: ScheduleWorld, profile: FirmwareProfile, on_ts: int, off_ts: int, held: bool
) -> None:
    device = await world.device(profile=profile)
    whole = NOW - NOW % MINUTE
    await world.put(device, whole + on_ts, whole + off_ts)
    assert (world.marked != []) is held
    await sent_to(world, device)
    [shown] = await world.schedules.list(world.session(Role.OWNER), device.device_id)
    assert shown.firmware_synced is held


async def test_a_stock_device_that_reconnects_without_the_plan_gets_it(world: ScheduleWorld) -> None:
    device = await world.device(profile=FirmwareProfile.SHELLY)
    await world.put(device, NOW + 10 * MINUTE, NOW + HOUR)
    world.marked.clear()
    for expected in ([device.device_id], []):
        async with world.uow.write() as tx:
            world.plans.on_online(tx, await tx.devices.find(device.device_id))
        assert world.marked == expected
        world.marked.clear()
        await sent_to(world, device)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def planned(world: ScheduleWorld) -> ScheduleOccurrenceService:
    return ScheduleOccurrenceService(uow=world.uow, clock=world.clock, recurrence=world.recurrence)


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=BERLIN).timestamp()) * 1000


async def test_a_single_slot_appears_with_both_switches_and_a_paused_one_too(
    world: ScheduleWorld, planned: ScheduleOccurrenceService
) -> None:
    device = await world.device()
    await world.put(device, NOW + HOUR, NOW + 2 * HOUR, enabled=False)
    found = await planned.list(world.session(), NOW * 1000, (NOW + DAY) * 1000)
    assert [(each.edge, each.at_ts) for each in found.occurrences] == [
        (SwitchEdge.ON, NOW + HOUR),
        (SwitchEdge.OFF, NOW + 2 * HOUR),
    ]
    assert found.is_complete
    assert (await planned.list(world.session(), (NOW + 2 * HOUR + 1) * 1000, (NOW + DAY) * 1000)).occurrences == []


async def test_clock_times_stay_when_the_clocks_change(world: ScheduleWorld, planned: ScheduleOccurrenceService) -> None:
    device = await world.device()
    on, off = ms(2027, 3, 20, 6) // 1000, ms(2027, 3, 20, 7) // 1000
    await world.put(device, on, off, rrule="FREQ=DAILY", timezone="Europe/Berlin")
    found = await planned.list(world.session(), ms(2027, 3, 27), ms(2027, 3, 30))
    starts = [each.at_ts for each in found.occurrences if each.edge is SwitchEdge.ON]
    assert [datetime.fromtimestamp(at, BERLIN).hour for at in starts] == [6, 6, 6]
    assert starts[1] - starts[0] == 23 * HOUR  # 28 March 2027: the clocks go forward
    assert {datetime.fromtimestamp(each.at_ts, BERLIN).hour for each in found.occurrences} == {6, 7}


async def test_a_span_that_is_too_long_is_refused_and_too_many_switches_are_cut(
    world: ScheduleWorld, planned: ScheduleOccurrenceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for until in (NOW * 1000, (NOW + 36 * DAY) * 1000):
        with pytest.raises(ValidationFailed):
            await planned.list(world.session(), NOW * 1000, until)
    monkeypatch.setattr(service, "MAX_OCCURRENCES", 3)
    device = await world.device()
    await world.put(device, NOW + HOUR, NOW + 2 * HOUR, rrule="FREQ=DAILY")
    cut = await planned.list(world.session(), NOW * 1000, (NOW + 7 * DAY) * 1000)
    assert (len(cut.occurrences), cut.is_complete) == (3, False)
