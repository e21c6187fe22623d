"""What was stored since a moment: the store time, marks of late uploads, messages in ranges of times."""

from __future__ import annotations

from support.storage import StoredAccount


async def test_the_store_time_never_decreases(world: StoredAccount) -> None:
    async with world.uow.read() as tx:
        assert await tx.arrivals.store_time() == 0
    async with world.uow.write() as tx:
        assert await tx.arrivals.advance_store_time(100) == 100
        assert await tx.arrivals.advance_store_time(90) == 100
    async with world.uow.write() as tx:
        assert await tx.arrivals.advance_store_time(101) == 101
    async with world.uow.read() as tx:
        assert await tx.arrivals.store_time() == 101


async def test_marks_of_late_uploads_grow_and_are_found_by_device_and_minute(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.arrivals.mark_late([(1, 5, 100, 200), (2, 5, 10, 20), (3, 5, 1, 2)])
        await tx.arrivals.mark_late([(1, 5, 150, 300), (1, 7, 50, 60), (2, 4, 1, 5)])
        await tx.arrivals.mark_late([])
    async with world.uow.read() as tx:
        assert dict(await tx.arrivals.list_late([1, 2, 9], 5)) == {1: (50, 300), 2: (10, 20)}
        assert dict(await tx.arrivals.list_late([1, 2], 6)) == {1: (50, 60)}
        assert dict(await tx.arrivals.list_late([], 0)) == {}


async def test_marks_of_earlier_minutes_are_deleted_in_batches(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.arrivals.advance_store_time(1_000)
        assert await tx.arrivals.delete_late_before(99, 1) == 0
        assert await tx.arrivals.marks_since() == 0
        await tx.arrivals.mark_late([(device_no, minute, 1, 2) for device_no in (1, 2) for minute in (5, 6)])
        assert [await tx.arrivals.delete_late_before(6, 1) for _ in range(3)] == [1, 1, 0]
        assert set(await tx.arrivals.list_late([1, 2], 0)) == {1, 2}
        assert await tx.arrivals.marks_since() == 6 * 60
        assert await tx.arrivals.delete_late_before(7, 9) == 2
        assert await tx.arrivals.advance_store_time(2_000) == 2_000
    async with world.uow.read() as tx:
        assert await tx.arrivals.marks_since() == 7 * 60


async def test_messages_are_counted_and_listed_by_ranges(world: StoredAccount) -> None:
    rows = [(device, at, digest, b"%d" % at) for device in (1, 2, 3) for at in (10, 11, 12) for digest in (1, -2)]
    async with world.uow.write() as tx:
        await tx.readings.add_many(rows)
    ranges = [(2, 0, 11), (1, 11, 13), (7, 0, 99), (2, 12, 2**52)]
    async with world.uow.read() as tx:
        assert list(await tx.arrivals.count_messages(ranges, 99)) == [2, 4, 0, 2]
        assert list(await tx.arrivals.count_messages(ranges, 3)) == [2, 3, 0, 2]
        assert list(await tx.arrivals.count_messages([], 3)) == []
        assert list(await tx.arrivals.list_messages([])) == []
        wanted = [row for row in rows if (row[0] == 1 and row[1] >= 11) or (row[0] == 2 and row[1] != 11)]
        assert list(await tx.arrivals.list_messages(ranges)) == sorted(wanted)
