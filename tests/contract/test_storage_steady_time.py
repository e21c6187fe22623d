"""Steady time: one row that the instances of a database share."""

from __future__ import annotations

from domain.kernel.steady_time import MAX_STOP_MS, SteadyTimePersistenceService
from support.manual_clock import ManualClock
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.storage import StoredAccount

SECOND_MS = 1_000
HOUR_MS = 3_600_000
MAX_QUERY_MS = 60_000
"""PostgreSQL tells by its own, real clock how old a row is."""


async def test_it_never_goes_back_whatever_an_instance_says(world: StoredAccount) -> None:
    async with world.uow.read() as tx:
        assert await tx.steady_time.find(500) is None
    async with world.uow.write() as tx:
        assert await tx.steady_time.advance(100, 500) == (100, None)
        assert await tx.steady_time.advance(90, 510) == (100, None)
        assert await tx.steady_time.advance(120, 480) == (120, None)
    async with world.uow.read() as tx:
        stored = await tx.steady_time.find(485)
    assert stored is not None
    steady_ms, age_ms, *others = stored
    assert (steady_ms, others) == (120, [None, None, None])
    assert 0 <= age_ms < MAX_QUERY_MS


async def test_up_to_when_devices_were_heard_stays_while_that_is_not_known(world: StoredAccount) -> None:
    for steady_ms, heard_ms in ((100, 90), (120, None)):
        async with world.uow.write() as tx:
            await tx.steady_time.advance(steady_ms, 500, heard_ms)
    async with world.uow.read() as tx:
        stored = await tx.steady_time.find(500)
    assert stored is not None
    assert (stored.steady_ms, stored.heard_ms) == (120, 90)


async def test_the_believed_wall_time_stays_while_the_clock_is_in_doubt_and_a_person_confirms_it(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.steady_time.confirm_wall_time(1)
        await tx.steady_time.advance(100, 500, None, 400)
        await tx.steady_time.confirm_wall_time(510)
        assert await tx.steady_time.advance(120, 520) == (120, 510)
    async with world.uow.read() as tx:
        stored = await tx.steady_time.find(520)
    assert stored is not None
    assert (stored.wall_offset_ms, stored.confirmed_ms) == (400, 510)


async def test_a_new_database_begins_with_the_wall_time_and_instances_follow_the_one_that_is_ahead(world: StoredAccount) -> None:
    first, second = ManualClock(), ManualClock()
    await SteadyTimePersistenceService(uow=world.uow, clock=first).start()
    assert first.steady_ms() == first.now_ms()
    second.step(minutes=-60)
    other = SteadyTimePersistenceService(uow=world.uow, clock=second)
    await other.start()
    assert abs(second.steady_ms() - first.steady_ms()) < MAX_QUERY_MS
    first.forward(seconds=100)
    await SteadyTimePersistenceService(uow=world.uow, clock=first).keep()
    await other.keep()
    assert 0 <= second.steady_ms() - first.steady_ms() < MAX_QUERY_MS


async def test_a_step_of_the_wall_clock_does_not_touch_it(world: StoredAccount) -> None:
    clock = ManualClock()
    service = SteadyTimePersistenceService(uow=world.uow, clock=clock)
    await service.start()
    before_ms = clock.steady_ms()
    for minutes in (60, -120):
        clock.step(minutes=minutes)
        await service.keep()
        assert clock.steady_ms() == before_ms
    clock.forward(SECOND_MS)
    assert clock.steady_ms() == before_ms + SECOND_MS


async def test_a_restart_goes_on_from_the_stored_time_and_adds_the_stop_within_bounds() -> None:
    uow, clock = MemoryUnitOfWork(), ManualClock()
    await SteadyTimePersistenceService(uow=uow, clock=clock).start()
    stored_ms = clock.steady_ms()
    for stop_ms, counted_ms in ((HOUR_MS, HOUR_MS), (-2 * HOUR_MS, 0), (90 * MAX_STOP_MS, MAX_STOP_MS)):
        clock = ManualClock(clock.now_ms() + stop_ms)
        await SteadyTimePersistenceService(uow=uow, clock=clock).start()
        stored_ms += counted_ms
        assert clock.steady_ms() == stored_ms
