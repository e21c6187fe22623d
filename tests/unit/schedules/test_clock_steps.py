"""Slots whose time a step of the clock left out, or that a clock decided which was ahead."""

from __future__ import annotations

import pytest

from domain.devices.model import Device
from domain.schedules.left_edges import RelayEvidence
from domain.schedules.model import EdgeOutcome, ScheduleStatus, SwitchEdge
from support.schedule_world import DAY, HOUR, MINUTE, NOW, ScheduleWorld

DAILY = "FREQ=DAILY"


async def hold_plan(world: ScheduleWorld, device: Device) -> None:
    """The device is there and has stored its plan."""
    device = await world.stored(device.device_id)
    async with world.uow.write() as tx:
        await tx.devices.set_online(device.device_id, True)
        await world.plans.on_plan_revisions(tx, [(device, device.sched_rev)])


async def step_over(world: ScheduleWorld, minutes: int) -> None:
    """The clock is set forward, and the step is believed."""
    before_ms = world.clock.now_ms()
    world.clock.step(minutes=minutes)
    world.absence.begin_step(before_ms)
    await world.fire()


async def next_edge(world: ScheduleWorld, device: Device) -> tuple[int | None, SwitchEdge | None]:
    schedule = await world.slot(device)
    return schedule.next_fire_ts, schedule.next_edge


@pytest.mark.parametrize(
    ("relay", "cause", "expected", "sent"),
    [
        (True, "sched", EdgeOutcome.RAN_ON_DEVICE, []),
        (False, "button", EdgeOutcome.SUPERSEDED, []),
        (None, None, EdgeOutcome.FIRED_LATE, ["ON"]),
    ],
)
async def test_an_edge_in_a_step_is_settled_by_the_word_of_the_device_first(
    world: ScheduleWorld, relay: bool | None, cause: str | None, expected: EdgeOutcome, sent: list[str]
) -> None:
    device = await world.device()
    await world.put(device, NOW + 10 * MINUTE, NOW + DAY)
    await hold_plan(world, device)
    await step_over(world, minutes=60)
    assert ((await world.slot(device)).last_outcome, await world.sent(device)) == (EdgeOutcome.LEFT_TO_DEVICE, [])
    if relay is not None:
        async with world.uow.write() as tx:
            evidence = RelayEvidence(relay, world.clock.now_ms(), cause)
            await world.left_edges.on_relay_reports(tx, [(await world.stored(device.device_id), evidence)])
    await world.left_edges.resolve_due()
    world.clock.forward(seconds=11)
    await world.left_edges.resolve_due()
    assert ((await world.slot(device)).last_outcome, await world.sent(device)) == (expected, sent)


async def test_an_edge_in_a_step_that_no_device_holds_falls_under_misfire(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10 * MINUTE, NOW + 2 * HOUR, rrule=DAILY, misfire_grace_s=60)
    await hold_plan(world, device)
    await step_over(world, minutes=60)
    assert (await world.slot(device)).last_outcome is EdgeOutcome.MISSED


async def test_a_recurring_slot_that_was_decided_weeks_ahead_gets_its_next_edge_anew(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + HOUR, rrule=DAILY)
    await world.fire(NOW + 10)
    await world.fire(NOW + 40 * DAY + MINUTE)
    assert (await next_edge(world, device))[0] == NOW + 40 * DAY + HOUR
    world.clock.ms = (NOW + 20) * 1000
    assert await world.firing.compute_anew(world.clock.now_ms()) == 1
    assert await world.firing.compute_anew(world.clock.now_ms()) == 0
    assert await next_edge(world, device) == (NOW + HOUR, SwitchEdge.OFF), "it was told as superseded, and it was not due"
    await world.fire(NOW + HOUR)
    assert (await world.slot(device)).last_outcome is EdgeOutcome.FIRED


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_recurring_slot_that_ended_weeks_ahead_goes_on_unless_the_slot_is_taken(
    world: ScheduleWorld, is_taken: bool
) -> None:
    device = await world.device()
    await world.put(device, NOW + MINUTE, NOW + HOUR, rrule=f"{DAILY};COUNT=3")
    await world.fire(NOW + 40 * DAY)
    assert (await world.slot(device)).status is ScheduleStatus.COMPLETED
    world.clock.ms = NOW * 1000
    if is_taken:
        await world.put(device, NOW + 2 * HOUR, NOW + 3 * HOUR)
    assert await world.firing.compute_anew(world.clock.now_ms()) == 1
    assert await next_edge(world, device) == (NOW + 2 * HOUR if is_taken else NOW + MINUTE, SwitchEdge.ON)


async def test_an_edge_that_has_been_decided_does_not_come_again(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10 * MINUTE, NOW + 20 * MINUTE, rrule=DAILY)
    await world.fire(NOW + 10 * MINUTE)
    world.clock.ms = NOW * 1000
    assert await world.firing.compute_anew(world.clock.now_ms()) == 1
    assert await next_edge(world, device) == (NOW + 20 * MINUTE, SwitchEdge.OFF)
    assert await world.sent(device) == ["ON"]


async def test_a_slot_of_the_present_keeps_its_edge(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + HOUR, rrule=DAILY)
    assert await world.firing.compute_anew(world.clock.now_ms()) == 0
    assert await next_edge(world, device) == (NOW + 10, SwitchEdge.ON)


async def test_a_slot_that_runs_once_waits_while_a_start_far_ahead_is_in_doubt(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + HOUR, NOW + 2 * HOUR, slot=0)
    await world.put(device, NOW + HOUR, NOW + 2 * HOUR, slot=1, rrule=DAILY)
    started_ts = NOW + 40 * DAY
    await world.put(device, started_ts + 10, started_ts + HOUR, slot=2)
    doubt: list[int | None] = [started_ts * 1000]
    world.firing = world.make_firing(doubtful_until_ms=lambda: doubt[0])
    await world.fire(started_ts + 20)
    waiting = await world.slot(device, 0)
    assert (waiting.status, waiting.next_fire_ts) == (ScheduleStatus.PENDING, NOW + HOUR)
    assert [(await world.slot(device, slot)).last_outcome for slot in (1, 2)] != [None, None]
    assert (await world.slot(device, 2)).last_outcome in (EdgeOutcome.FIRED, EdgeOutcome.FIRED_LATE)
    following_ts = await world.firing.next_due_ts()
    assert following_ts is not None
    assert following_ts > started_ts

    doubt[0], world.clock.ms = None, NOW * 1000  # the clock was wrong
    await world.fire(NOW + HOUR)
    assert (await world.slot(device, 0)).last_outcome is EdgeOutcome.FIRED
