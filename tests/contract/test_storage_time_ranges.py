"""Readings by day and roll-ups by week, where the database divides them: what is stored is found whatever is divided or dropped."""

from __future__ import annotations

from typing import Any

from domain.kernel.clock import DAY_MS
from support.storage import NOW, StoredAccount

TODAY = NOW // DAY_MS * DAY_MS
WEEK_H = 7 * 24
THIS_WEEK = TODAY // DAY_MS * 24 // WEEK_H * WEEK_H


async def stored_times(tx: Any) -> list[int]:
    return [at for at, _ in await tx.readings.list_between(1, -(2**40), 2**45, 1_000, newest_first=False)]


async def prepare(world: StoredAccount, now_ms: int) -> None:
    async with world.uow.write() as tx:
        await tx.range_partitions.prepare(now_ms)


async def test_rows_of_every_time_are_stored_once_and_read_in_order(world: StoredAccount) -> None:
    """The far past, days with a range of their own, both sides of midnight, and a day that nobody has prepared."""
    times = [-1, 0, TODAY - 40 * DAY_MS, TODAY - 1, TODAY, TODAY + 1, TODAY + 2 * DAY_MS, TODAY + 300 * DAY_MS]
    async with world.uow.write() as tx:
        await tx.range_partitions.divide_past(TODAY - 5 * DAY_MS)
    await prepare(world, TODAY)
    async with world.uow.write() as tx:
        for _ in range(2):
            await tx.readings.add_many([(1, at, 7, b"x") for at in times])
        assert await stored_times(tx) == times
        assert await tx.readings.list_existing([(1, at, 7) for at in [*times, 5]]) == {(1, at, 7) for at in times}
    await prepare(world, TODAY + 290 * DAY_MS)
    async with world.uow.read() as tx:
        assert await stored_times(tx) == times


async def test_rows_that_came_before_their_range_was_made_move_into_it(world: StoredAccount) -> None:
    hours = [THIS_WEEK + number * WEEK_H for number in range(-3, 40)]
    times = [TODAY + number * DAY_MS for number in range(-3, 40)]
    async with world.uow.write() as tx:
        await tx.readings.add_many([(1, at, 1, b"x") for at in times])
        await tx.rollups.upsert([(1, hour, b"x") for hour in hours])
    for day in (0, 1, 30, 30):
        await prepare(world, TODAY + day * DAY_MS)
    async with world.uow.write() as tx:
        await tx.rollups.upsert([(1, hours[-1], b"new")])
        assert await stored_times(tx) == times
        assert [hour for hour, _ in await tx.rollups.list_between(1, 0, 2**31, 99)] == hours[::-1]
        assert (await tx.rollups.get_by_hours([(1, hours[-1]), (1, hours[0])])) == {(1, hours[-1]): b"new", (1, hours[0]): b"x"}


async def test_only_whole_expired_ranges_are_dropped_and_late_rows_still_have_a_place(world: StoredAccount) -> None:
    times = [TODAY + number * DAY_MS for number in range(-4, 3)]
    async with world.uow.write() as tx:
        await tx.range_partitions.divide_past(times[0])
    await prepare(world, TODAY)
    cutoff = TODAY + DAY_MS // 2
    for _ in range(2):
        async with world.uow.write() as tx:
            await tx.readings.add_many([(1, at, 1, b"x") for at in times])
            await tx.rollups.upsert([(1, THIS_WEEK, b"x")])
        async with world.uow.write() as tx:
            await tx.range_partitions.drop_before(cutoff, THIS_WEEK)
            while await tx.readings.delete_batch(1, 100, TODAY):  # what the database could not drop
                pass
            assert await stored_times(tx) == [TODAY, TODAY + DAY_MS, TODAY + 2 * DAY_MS]
            assert list(await tx.readings.list_devices_with_rows_before(TODAY, 0, 9)) == []
            assert len(await tx.rollups.list_between(1, 0, 2**31, 9)) == 1


async def test_days_with_readings_are_kept_until_the_readings_have_been_moved(world: StoredAccount) -> None:
    times = [TODAY + number * DAY_MS for number in range(-4, 1)]
    async with world.uow.write() as tx:
        await tx.range_partitions.divide_past(times[0])
    await prepare(world, TODAY)
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device_no, at, 1, b"x") for device_no in (1, 2) for at in times])
    for moved in range(len(times)):
        async with world.uow.write() as tx:
            await tx.range_partitions.drop_before(TODAY, THIS_WEEK, keep_readings=True)
            assert await stored_times(tx) == times[moved:]
            old = list(await tx.readings.list_devices_with_rows_before(TODAY, 0, 9, in_ranges=True))
            assert old == ([1, 2] if times[moved] < TODAY else [])
            for device_no in (1, 2):
                await tx.readings.delete_messages(device_no, [(times[moved], 1)])
    async with world.uow.write() as tx:
        await tx.range_partitions.drop_before(TODAY, THIS_WEEK, keep_readings=True)
        await tx.readings.add_many([(1, at, 1, b"x") for at in times])
        assert await stored_times(tx) == times
