"""An edge that an offline device is to run by itself is announced when the device confirms it, and else made good or missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.devices.model import Device
from domain.schedules.left_edges import RelayEvidence
from domain.schedules.model import EdgeOutcome, MisfirePolicy, ScheduleStatus
from support.schedule_world import HOUR, NOW, ScheduleWorld

ON_TS, OFF_TS = NOW + 60, NOW + HOUR


async def left(world: ScheduleWorld, **fields: object) -> Device:
    """An offline device that holds its plan, past the second of its ON edge."""
    device = await world.device()
    await world.put(device, ON_TS, OFF_TS, **fields)  # type: ignore[arg-type]
    device = await world.stored(device.device_id)
    async with world.uow.write() as tx:
        await world.plans.on_plan_revisions(tx, [(device, device.sched_rev)])
    await world.fire(ON_TS)
    return await world.stored(device.device_id)


async def returns(world: ScheduleWorld, device: Device, at_ts: int, relay: bool, cause: str | None = None, **more: Any) -> None:
    world.clock.ms = at_ts * 1000
    device = replace(await world.stored(device.device_id), is_online=True)
    async with world.uow.write() as tx:
        await tx.devices.set_online(device.device_id, True)
        await world.left_edges.on_relay_reports(tx, [(device, RelayEvidence(relay, at_ts * 1000, cause, **more))])


async def test_nothing_is_announced_until_the_device_confirms_the_edge(world: ScheduleWorld) -> None:
    device = await left(world)
    slot = await world.slot(device)
    assert (slot.last_outcome, slot.status, slot.next_fire_ts) == (EdgeOutcome.LEFT_TO_DEVICE, ScheduleStatus.PENDING, OFF_TS)
    assert (device.has_left_edges, world.fired(), world.skipped(), await world.sent(device)) == (True, [], [], [])
    await returns(world, device, ON_TS + 600, True, "sched")
    slot = await world.slot(device)
    assert (slot.last_outcome, slot.status) == (EdgeOutcome.RAN_ON_DEVICE, ScheduleStatus.ACTIVE)
    assert slot.last_fired_ms == ON_TS * 1000
    assert (world.fired(), await world.sent(device)) == ([("on", 0)], [])
    assert not (await world.stored(device.device_id)).has_left_edges
    assert {edge.outcome for edge in await world.edges()} == {EdgeOutcome.RAN_ON_DEVICE}


async def test_a_relay_that_is_as_the_edge_wanted_it_confirms_it(world: ScheduleWorld) -> None:
    device = await left(world)
    await returns(world, device, ON_TS + 5, True)
    assert world.fired() == [("on", 0)]


async def test_a_relay_of_another_channel_says_nothing_about_the_edge(world: ScheduleWorld) -> None:
    device = await left(world)
    for relay in (True, False):
        await returns(world, device, ON_TS + 5, relay, channel=2)
    assert (world.fired(), world.skipped(), await world.sent(device)) == ([], [], [])
    assert (await world.slot(device)).last_outcome is EdgeOutcome.LEFT_TO_DEVICE
    await returns(world, device, ON_TS + 6, True)
    assert world.fired() == [("on", 0)]


async def test_an_edge_that_was_not_run_is_made_good_within_the_grace(world: ScheduleWorld) -> None:
    device = await left(world)
    await returns(world, device, ON_TS + 600, False)
    assert (world.fired(), await world.sent(device)) == ([("on", 600)], ["ON"])
    slot = await world.slot(device)
    assert (slot.last_outcome, slot.status) == (EdgeOutcome.FIRED_LATE, ScheduleStatus.ACTIVE)
    await returns(world, device, ON_TS + 601, False)
    assert await world.sent(device) == ["ON"]


@pytest.mark.parametrize(("misfire", "late_s"), [(MisfirePolicy.FIRE, 901), (MisfirePolicy.SKIP, 61)])
async def test_an_edge_that_was_not_run_is_missed_by_its_policy(
    world: ScheduleWorld, misfire: MisfirePolicy, late_s: int
) -> None:
    device = await left(world, misfire=misfire)
    await returns(world, device, ON_TS + late_s, False)
    assert (world.fired(), world.skipped(), await world.sent(device)) == ([], [("on", "MISSED")], [])
    slot = await world.slot(device)
    assert (slot.last_outcome, slot.status) == (EdgeOutcome.MISSED, ScheduleStatus.PENDING)


async def test_a_report_from_before_the_second_or_of_a_command_tells_nothing(world: ScheduleWorld) -> None:
    device = await left(world)
    await returns(world, device, ON_TS - 1, False)
    await returns(world, device, ON_TS + 5, False, "cmd", is_by_command=True)
    assert (world.fired(), world.skipped(), await world.sent(device)) == ([], [], [])
    assert (await world.slot(device)).last_outcome is EdgeOutcome.LEFT_TO_DEVICE


async def test_on_is_never_made_good_once_off_was_due(world: ScheduleWorld) -> None:
    device = await left(world)
    await world.fire(OFF_TS)
    assert (await world.slot(device)).status is ScheduleStatus.COMPLETED
    await returns(world, device, OFF_TS + 10, True)
    assert (world.fired(), world.skipped(), await world.sent(device)) == ([("off", 10)], [("on", "SUPERSEDED")], ["OFF"])
    assert (await world.slot(device)).last_outcome is EdgeOutcome.FIRED_LATE


async def test_a_device_that_says_its_schedule_switched_has_run_both_edges(world: ScheduleWorld) -> None:
    device = await left(world)
    await world.fire(OFF_TS)
    await returns(world, device, OFF_TS + 10, False, "sched")
    assert (world.fired(), await world.sent(device)) == ([("on", 0), ("off", 0)], [])


@pytest.mark.parametrize("later", ["button", "command", "cancelled", "replaced", "edited"])
async def test_an_edge_is_not_made_good_against_a_later_decision(world: ScheduleWorld, later: str) -> None:
    device = await left(world)
    world.clock.ms += 30_000
    cause = None
    match later:
        case "button":
            cause = "button"
        case "command":
            await world.commands.submit(world.session(), device.device_id, "OFF")
        case "cancelled":
            await world.schedules.cancel(world.session(), device.device_id, 0)
        case "replaced":
            await world.put(device, OFF_TS + 60, OFF_TS + 120)
        case "edited":
            await world.schedules.update(world.session(), device.device_id, 0, {"on_ts": OFF_TS - 60})
    before = await world.sent(device)
    await returns(world, device, ON_TS + 60, False, cause)
    assert (world.fired(), await world.sent(device)) == ([], before)
    assert world.skipped() == [("on", "SUPERSEDED")]


@pytest.mark.parametrize(
    ("holds", "outcome"), [(0, EdgeOutcome.FIRED_LATE), (None, EdgeOutcome.FIRED_LATE), (1, EdgeOutcome.RAN_ON_DEVICE)]
)
async def test_a_device_that_tells_no_relay_is_judged_by_the_plan_it_holds(
    world: ScheduleWorld, holds: int | None, outcome: EdgeOutcome
) -> None:
    device = await left(world)
    assert await world.left_edges.resolve_due() is None  # it is not back
    world.clock.ms += 60_000
    async with world.uow.write() as tx:
        await tx.devices.set_online(device.device_id, True)
        if holds is not None:
            await world.left_edges.on_plan_revisions(tx, {device.device_id: holds * device.sched_rev})
            await world.left_edges.on_plan_revisions(tx, {device.device_id: device.sched_rev})  # what it was given now
    assert await world.left_edges.resolve_due() == 10_000
    world.clock.step(minutes=60)
    assert await world.left_edges.resolve_due() == 10_000
    world.clock.step(minutes=-60)
    assert (await world.slot(device)).last_outcome is EdgeOutcome.LEFT_TO_DEVICE
    world.clock.forward(10_000)
    await world.left_edges.resolve_due()
    assert (await world.slot(device)).last_outcome is outcome
    assert await world.left_edges.resolve_due() is None


async def test_two_services_resolve_an_edge_once(world: ScheduleWorld) -> None:
    device = replace(await left(world), is_online=True)
    evidence = [(device, RelayEvidence(True, ON_TS * 1000 + 5))]
    async with world.uow.write() as tx:
        await world.left_edges.on_relay_reports(tx, evidence)
        await world.left_edges.on_relay_reports(tx, evidence)
    assert world.fired() == [("on", 0)]
