"""Edges that were due while the service could hear no device, by a clock that goes as far as it takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.devices.absence import GRACE_MS, STORED_AFTER_MS, AbsenceTracker
from domain.devices.model import Device
from domain.kernel.steady_time import SteadyTimePersistenceService
from domain.schedules.left_edges import RelayEvidence
from domain.schedules.model import EdgeOutcome
from support.manual_clock import ManualClock
from support.memory_storage.devices import DEVICES
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.schedule_world import DAY, HOUR, NOW, ScheduleWorld

GRACE_S = GRACE_MS // 1000
STORED_S = (GRACE_MS + STORED_AFTER_MS) // 1000


async def start_after(world: ScheduleWorld, seconds: int) -> None:
    """The service was away for so long until now."""
    async with world.uow.write() as tx:
        numbers = [device.device_no for device in tx.devices._database.rows(DEVICES).values()]
        await tx.devices.update_last_seen(dict.fromkeys(numbers, world.clock.now_ms()))
    world.clock.forward(seconds=seconds)
    world.absence.begin(world.clock.now_ms() - 1000 * seconds)
    await world.fire()


async def returns(world: ScheduleWorld, device: Device, relay: bool | None = None, cause: str | None = None) -> None:
    """The device connects, and may say how its relay is."""
    now_ms = world.clock.now_ms()
    async with world.uow.write() as tx:
        await tx.devices.set_online(device.device_id, True)
        await tx.devices.update_last_seen({device.device_no: now_ms})
        [found] = await tx.devices.list_by_ids({device.device_id})
        if relay is not None:
            await world.left_edges.on_relay_reports(tx, [(found, RelayEvidence(relay, now_ms, cause))])


async def outcome(world: ScheduleWorld, device: Device) -> EdgeOutcome | None:
    return (await world.slot(device)).last_outcome


@pytest.mark.parametrize("stays_away", [True, False])
async def test_an_edge_that_no_device_holds_waits_for_the_word_or_the_grace(world: ScheduleWorld, stays_away: bool) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + HOUR, rrule="FREQ=DAILY")
    await start_after(world, 60)
    assert await outcome(world, device) is EdgeOutcome.LEFT_TO_DEVICE
    assert await world.sent(device) == []
    if stays_away:
        world.clock.forward(seconds=GRACE_S - 1)
        await world.left_edges.resolve_due()
        assert await outcome(world, device) is EdgeOutcome.LEFT_TO_DEVICE
        world.clock.forward(seconds=2)
    else:
        await returns(world, device)
        await world.left_edges.resolve_due()
        world.clock.forward(seconds=11)
    await world.left_edges.resolve_due()
    assert await outcome(world, device) is EdgeOutcome.FIRED_LATE
    assert await world.sent(device) == ["ON"]


async def test_an_edge_that_is_too_late_by_then_is_missed(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + DAY // 2, rrule="FREQ=DAILY", misfire_grace_s=60)
    await start_after(world, HOUR)
    world.clock.forward(seconds=GRACE_S + 1)
    await world.left_edges.resolve_due()
    assert await outcome(world, device) is EdgeOutcome.MISSED


async def test_of_edges_that_only_the_service_runs_the_latest_counts_and_the_earlier_is_told(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + 20, rrule="FREQ=DAILY")
    await start_after(world, 60)
    assert world.skipped() == [("on", "SUPERSEDED")]
    await returns(world, device, True, "boot")
    assert await outcome(world, device) is EdgeOutcome.FIRED_LATE
    assert await world.sent(device) == ["OFF"]


async def test_a_person_at_the_device_is_not_overruled(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + HOUR, rrule="FREQ=DAILY")
    await start_after(world, 60)
    await returns(world, device, False, "button")
    assert await outcome(world, device) is EdgeOutcome.SUPERSEDED
    assert await world.sent(device) == []


async def test_a_device_that_holds_its_plan_and_stays_away_keeps_its_edges(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + 20)
    device = await world.stored(device.device_id)
    async with world.uow.write() as tx:
        await world.plans.on_plan_revisions(tx, [(device, device.sched_rev)])
    await start_after(world, 23 * HOUR)
    world.clock.forward(seconds=2 * HOUR)
    await world.left_edges.resolve_due()
    assert (world.fired(), world.skipped()) == ([], [])
    await returns(world, device, False, "sched")
    assert (world.fired(), world.skipped(), await world.sent(device)) == ([("on", 0), ("off", 0)], [], [])


async def test_an_edge_after_the_absence_runs_as_ever_for_a_device_that_has_spoken(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 70, NOW + HOUR, rrule="FREQ=DAILY")
    await start_after(world, 60)
    await returns(world, device)
    await world.fire(NOW + 70)
    assert await outcome(world, device) is EdgeOutcome.FIRED


async def test_an_edge_within_the_grace_waits_for_a_device_that_has_not_spoken(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 70, NOW + HOUR, rrule="FREQ=DAILY")
    await start_after(world, 60)
    await world.fire(NOW + 70)
    assert await outcome(world, device) is EdgeOutcome.LEFT_TO_DEVICE


class Process:
    """One life of the service on a database."""

    def __init__(self, uow: MemoryUnitOfWork, at_ms: int, peers: Sequence[Process] | None = None) -> None:
        """`peers`: the other instances of its cluster that live."""
        self.clock = ManualClock(at_ms)
        self.peers = peers
        self.absence = AbsenceTracker(uow=uow, clock=self.clock)
        self.steady = SteadyTimePersistenceService(uow=uow, clock=self.clock, heard_ms=self.absence.heard_ms)

    async def start(self) -> int | None:
        """The length of the absence."""
        found = await self.absence.start(None if self.peers is None else self.pause)
        await self.steady.start()
        return None if found is None else found.until_ms - found.since_ms

    async def pause(self) -> None:
        self.clock.forward(ms=100)
        for peer in self.peers or ():
            peer.clock.forward(ms=100)
            await peer.steady.keep()

    async def run(self, seconds: int) -> int:
        """Returns the wall time at its kill, right after a save."""
        self.clock.forward(seconds=seconds)
        await self.steady.keep()
        return self.clock.now_ms()


async def test_the_absence_is_as_long_as_nobody_heard() -> None:
    uow = MemoryUnitOfWork()
    first = Process(uow, 1_000_000)
    assert await first.start() is None
    killed_ms = await first.run(seconds=STORED_S)
    assert await Process(uow, killed_ms + 5_000).start() == 5_000


async def test_a_kill_before_the_grace_is_over_makes_one_absence_of_both() -> None:
    uow = MemoryUnitOfWork()
    first = Process(uow, 1_000_000)
    await first.start()
    killed_ms = await first.run(seconds=STORED_S)
    second = Process(uow, killed_ms + 3_600_000)
    assert await second.start() == 3_600_000
    killed_ms = await second.run(seconds=30)
    third = Process(uow, killed_ms + 1_000)
    assert await third.start() == 3_600_000 + 31_000
    killed_ms = await third.run(seconds=STORED_S)
    assert await Process(uow, killed_ms + 2_000).start() == 2_000


async def test_a_clock_that_was_set_back_during_the_stop_makes_no_negative_absence() -> None:
    uow = MemoryUnitOfWork()
    first = Process(uow, 1_000_000_000)
    await first.start()
    killed_ms = await first.run(seconds=STORED_S)
    assert await Process(uow, killed_ms - 500_000_000).start() == 0


async def test_an_instance_that_was_away_alone_makes_no_absence() -> None:
    uow = MemoryUnitOfWork()
    peer = Process(uow, 1_000_000, peers=[])
    await peer.start()
    now_ms = await peer.run(seconds=STORED_S)
    assert await Process(uow, now_ms, peers=[peer]).start() is None


async def test_instances_that_start_after_all_were_away_share_the_absence() -> None:
    uow = MemoryUnitOfWork()
    killed = Process(uow, 1_000_000, peers=[])
    await killed.start()
    killed_ms = await killed.run(seconds=STORED_S)
    first = Process(uow, killed_ms + 1_000, peers=[])
    assert await first.start() == 2_500  # it waits to see whether another one hears the devices
    second = Process(uow, killed_ms + 4_000, peers=[first])
    assert await second.start() == 4_000
    third = Process(uow, killed_ms + 40_000, peers=[first, second])
    assert await third.start() == 40_000


async def test_an_outage_of_the_broker_is_an_absence() -> None:
    clock, reachable = ManualClock(), True
    absence = AbsenceTracker(uow=MemoryUnitOfWork(), clock=clock, hears=lambda: reachable)
    await absence.start()
    assert absence.follow_link() is None
    reachable, since_ms = False, clock.now_ms()
    assert absence.follow_link() == since_ms
    clock.forward(seconds=90)
    assert absence.heard_ms() is None
    assert absence.follow_link() is None
    assert absence.rules_grace_left_ms > 0
    reachable = True
    absence.follow_link()
    assert absence.current is not None
    assert (absence.current.since_ms, absence.current.until_ms) == (since_ms, clock.now_ms())
    assert absence.is_open
    clock.forward(seconds=STORED_S)
    assert absence.heard_ms() == clock.steady_ms()


async def test_a_broker_that_was_lost_and_is_back_between_two_looks_is_an_absence_too() -> None:
    clock, reconnects = ManualClock(), 3
    absence = AbsenceTracker(uow=MemoryUnitOfWork(), clock=clock, reconnects=lambda: reconnects)
    await absence.start()
    assert absence.follow_link() is None
    assert absence.follow_link() is None
    reconnects, since_ms = 4, clock.now_ms()
    assert absence.follow_link() == since_ms
    clock.forward(seconds=1)
    assert absence.follow_link() is None
    assert absence.current is not None
    assert (absence.current.since_ms, absence.current.until_ms) == (since_ms, clock.now_ms())
    assert absence.is_open


async def test_a_device_that_was_never_seen_has_nothing_to_tell(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.put(device, NOW + 10, NOW + HOUR, rrule="FREQ=DAILY")
    world.clock.forward(seconds=60)
    world.absence.begin(NOW * 1000)
    await world.fire()
    assert await outcome(world, device) is EdgeOutcome.FIRED_LATE
