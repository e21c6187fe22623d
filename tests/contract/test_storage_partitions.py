"""Partitions, members and connections of devices: every change of a partition compares what it continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.devices.ports import NO_FRONT
from domain.partitions.model import (
    ClusterMember,
    InboundLogReachability,
    LogAdvanceAlreadyCommittedError,
    Partition,
    PartitionLogAdvance,
    PartitionLostError,
)
from support.storage import StoredAccount


async def claimed(storage: Any, instance: str, partition: int = 0) -> Partition:
    async with storage.write() as tx:
        await tx.partitions.create_missing(4)
        row = (await tx.partitions.list_all())[partition]
        found = await tx.partitions.claim(row, instance, "log-1")
    assert isinstance(found, Partition)
    return found


async def test_the_number_of_partitions_is_fixed_by_the_first_start(storage: Any) -> None:
    async with storage.write() as tx:
        assert await tx.partitions.create_missing(4) == 4
        assert await tx.partitions.create_missing(8) == 4
        assert await tx.partitions.list_all() == [Partition(number) for number in range(4)]


async def test_one_of_two_claims_of_the_same_row_wins(storage: Any) -> None:
    first = await claimed(storage, "a")
    assert first == Partition(0, epoch=1, owner="a", log_id="log-1")
    async with storage.write() as tx:
        assert await tx.partitions.claim(Partition(0), "b", "log-2") is None
        second = await tx.partitions.claim(first, "b", "log-2")
    assert second == Partition(0, epoch=2, owner="b", log_id="log-1")
    async with storage.write() as tx:
        assert not await tx.partitions.release(0, 1)
        assert await tx.partitions.release(0, 2)
        assert (await tx.partitions.list_all())[0] == Partition(0, epoch=3, log_id="log-1")


async def test_a_position_advances_from_what_is_stored_in_the_epoch_that_owns_it(storage: Any) -> None:
    await claimed(storage, "a")
    async with storage.write() as tx:
        await tx.partitions.advance(PartitionLogAdvance(0, 1, 0, 5))
        await tx.partitions.advance(PartitionLogAdvance(0, 1, 5, 5))
    with pytest.raises(LogAdvanceAlreadyCommittedError):
        async with storage.write() as tx:
            await tx.partitions.advance(PartitionLogAdvance(0, 1, 0, 5))
    for lost in (
        PartitionLogAdvance(0, 0, 5, 6),
        PartitionLogAdvance(0, 2, 5, 6),
        PartitionLogAdvance(0, 1, 4, 6),
        PartitionLogAdvance(0, 1, 6, 7),
    ):
        with pytest.raises(PartitionLostError):
            async with storage.write() as tx:
                await tx.partitions.advance(lost)
    async with storage.read() as tx:
        assert (await tx.partitions.list_all())[0].position == 5


async def test_what_a_rejected_transaction_wrote_is_not_stored(storage: Any) -> None:
    await claimed(storage, "a")
    with pytest.raises(PartitionLostError):
        async with storage.write() as tx:
            await tx.partitions.advance(PartitionLogAdvance(0, 1, 0, 5))
            await tx.partitions.advance(PartitionLogAdvance(1, 1, 0, 5))
    async with storage.read() as tx:
        assert (await tx.partitions.list_all())[0].position == 0


async def test_of_two_owners_that_store_at_once_one_is_rejected(storage: Any) -> None:
    before = await claimed(storage, "a")

    async def store(epoch: int) -> bool:
        try:
            async with storage.write() as tx:
                await tx.partitions.advance(PartitionLogAdvance(0, epoch, 0, 5))
                await asyncio.sleep(0.01)
        except PartitionLostError:
            return False
        return True

    async def take_over() -> bool:
        async with storage.write() as tx:
            taken = await tx.partitions.claim(before, "b", "log-1")
        assert taken is not None
        return taken.position == 5

    stored, seen = await asyncio.gather(store(1), take_over())
    assert stored is seen  # the new owner begins behind what was stored, and nothing is stored after it began


async def test_owned_partitions_are_proved_together(storage: Any) -> None:
    await claimed(storage, "a")
    async with storage.write() as tx:
        await tx.partitions.require_owned([(0, 1), (1, 0)])
    with pytest.raises(PartitionLostError):
        async with storage.write() as tx:
            await tx.partitions.require_owned([(0, 1), (1, 1)])


async def test_members_beat_until_they_are_removed(storage: Any) -> None:
    async with storage.write() as tx:
        for instance, reach in (
            ("b", InboundLogReachability.STEADY),
            ("a", InboundLogReachability.RECENT),
            ("b", InboundLogReachability.LOST),
        ):
            await tx.members.beat(instance, reach)
        assert await tx.members.list_all() == [
            ClusterMember("a", 1, InboundLogReachability.RECENT),
            ClusterMember("b", 2, InboundLogReachability.LOST),
        ]
        await tx.members.remove([])
        await tx.members.remove(["a"])
        assert await tx.members.list_all() == [ClusterMember("b", 2, InboundLogReachability.LOST)]
        assert await tx.members.end_sessions([]) == 0


async def test_a_device_is_attached_to_the_instance_it_connected_to_last(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert set(await tx.device_sessions.attach(dict.fromkeys([1, 2, 3], 10), "a")) == set()
        assert set(await tx.device_sessions.attach(dict.fromkeys([2, 4], 10), "b")) == {2}
        await tx.device_sessions.detach([1, 2], "a")
        assert await tx.device_sessions.fronts([1, 2, 3, 4]) == {2: "b", 3: "a", 4: "b"}
        assert await tx.device_sessions.fronts([]) == {}


async def test_since_when_a_device_is_connected_to_a_live_instance_is_that_of_its_last_connection(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.device_sessions.attach({1: 10, 2: 20, 3: 30}, "a")
        await tx.device_sessions.attach({2: 40, 4: 50}, "b")
        await tx.device_sessions.attach({1: 60}, "a")
    async with world.uow.read() as tx:
        assert await tx.device_sessions.connected_since([1, 2, 4, 9], ["b", "c"]) == {2: 40, 4: 50}
        assert await tx.device_sessions.connected_since([1, 3], ["a", "b"]) == {1: 60, 3: 30}
        assert await tx.device_sessions.connected_since([], ["a"]) == {}


async def test_devices_of_a_dead_instance_have_none_until_they_connect_or_are_offline(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.device_sessions.attach(dict.fromkeys([1, 2, 3], 10), "a")
        await tx.device_sessions.attach(dict.fromkeys([4], 10), "b")
        assert await tx.device_sessions.abandon(["b"]) == [1, 2, 3]
        assert set(await tx.device_sessions.attach(dict.fromkeys([1], 10), "b")) == {1}
        await tx.device_sessions.detach([1, 2], "c")
        assert await tx.device_sessions.abandon(["b"]) == [3]
    async with world.uow.read() as tx:
        assert await tx.device_sessions.fronts([1, 2, 3, 4]) == {1: "b", 3: NO_FRONT, 4: "b"}
