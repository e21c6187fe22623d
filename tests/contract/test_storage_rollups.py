"""Roll-ups, and the due marks of hours that still need one."""

from __future__ import annotations

from support.storage import NOW, StoredAccount

END = 2**31


async def test_due_marks_are_listed_oldest_hour_first_for_finished_hours(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert await tx.due_rollups.find_oldest_hour() is None
        await tx.due_rollups.mark([(2, 11), (1, 11), (1, 10), (1, 12)], NOW)
        await tx.due_rollups.mark([], NOW)
        assert list(await tx.due_rollups.list_before(12, 9)) == [(1, 10, NOW), (1, 11, NOW), (2, 11, NOW)]
        assert list(await tx.due_rollups.list_before(12, 1)) == [(1, 10, NOW)]
        assert await tx.due_rollups.find_oldest_hour() == 10
        assert list(await tx.due_rollups.list_hours(1, 10, 12)) == [11, 10]


async def test_a_worker_that_read_an_old_mark_does_not_delete_the_new_one(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.due_rollups.mark([(1, 10), (2, 10)], NOW)
        [seen, other] = await tx.due_rollups.list_before(11, 9)
        await tx.due_rollups.mark([(1, 10)], NOW)
        assert await tx.due_rollups.complete([seen, other]) == {(2, 10)}
        assert await tx.due_rollups.complete([seen, other]) == set()
        assert await tx.due_rollups.complete([]) == set()
        [marked_again] = await tx.due_rollups.list_before(11, 9)
        assert marked_again > seen
        await tx.due_rollups.mark([(1, 10)], NOW - 5)
        assert (await tx.due_rollups.list_before(11, 9))[0] > marked_again
        assert await tx.due_rollups.complete(await tx.due_rollups.list_before(11, 9)) == {(1, 10)}
        assert list(await tx.due_rollups.list_before(11, 9)) == []


async def test_roll_ups_are_replaced_and_read_newest_first(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.rollups.upsert([(1, hour, b"%d" % hour) for hour in range(5)])
        await tx.rollups.upsert([(1, 3, b"new"), (2, 3, b"other")])
        await tx.rollups.upsert([])
        assert await tx.rollups.get_by_hours([(1, 3), (1, 9), (2, 3)]) == {(1, 3): b"new", (2, 3): b"other"}
        assert await tx.rollups.get_by_hours([]) == {}
        assert list(await tx.rollups.list_between(1, 1, 4, 9)) == [(3, b"new"), (2, b"2"), (1, b"1")]
        assert list(await tx.rollups.list_between(1, 0, 5, 2)) == [(4, b"4"), (3, b"new")]
        assert [hour for hour, _ in await tx.rollups.list_between(1, 2, 5, 2, newest_first=False)] == [2, 3]


async def test_old_roll_ups_are_found_by_device_and_deleted_in_batches(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.rollups.upsert([(device, hour, b"x") for device in (1, 7, 9) for hour in range(4)])
        await tx.rollups.upsert([(8, 3, b"new")])
        assert [list(await tx.rollups.list_devices_with_rollups_before(3, first, 2)) for first in (0, 8, 10)] == [[1, 7], [9], []]
        assert [await tx.rollups.delete_older_than(7, 3, 2) for _ in range(3)] == [2, 1, 0]
        assert [hour for hour, _ in await tx.rollups.list_between(7, 0, END, 9)] == [3]
        assert len(await tx.rollups.list_between(1, 0, END, 9)) == 4


async def test_roll_ups_of_a_device_are_deleted_in_batches(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.rollups.upsert([(device, hour, b"x") for device in (1, 2) for hour in range(4)])
        await tx.due_rollups.mark([(1, hour) for hour in range(3)], NOW)
        assert [await tx.due_rollups.delete_batch(1, 2) for _ in range(3)] == [2, 1, 0]
        assert [await tx.rollups.delete_batch(1, 2) for _ in range(3)] == [2, 2, 0]
        assert len(await tx.rollups.list_between(2, 0, END, 9)) == 4
