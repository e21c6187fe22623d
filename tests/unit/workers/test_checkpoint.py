"""Where devices are divided among instances, each writes the checkpoints of those it owns."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app.workers.checkpoint import EngineCheckpointWorker
from domain.devices.health import ClockSkewService, LastSeenBuffer
from domain.kernel.unit_of_work import UnitOfWork
from domain.partitions.model import partition_of
from domain.partitions.ownership import OwnedPartitions
from domain.telemetry.ports import TelemetryTx
from support.telemetry_world import TelemetryWorld

PARTITIONS = 3


@pytest.fixture
async def world() -> TelemetryWorld:
    world = TelemetryWorld()
    await world.populate()
    for _ in range(12):
        await world.report(await world.device(), temperature=20)
    return world


async def checkpointed(world: TelemetryWorld) -> set[int]:
    """The partitions of which all devices, and the others of which no device has a checkpoint."""
    async with world.uow.read() as tx:
        found = {device_no for device_no, _, _ in await tx.readings.list_checkpoints()}
    partitions = {partition_of(device_no, PARTITIONS) for device_no in found}
    assert found == {number for number in range(1, 13) if partition_of(number, PARTITIONS) in partitions}
    return partitions


def worker_of(world: TelemetryWorld, ownership: OwnedPartitions) -> EngineCheckpointWorker:
    return EngineCheckpointWorker(
        engine=world.engine,
        uow=world.uow,
        last_seen=LastSeenBuffer(),
        clock_offsets=ClockSkewService(uow=world.uow, clock=world.clock),
        engine_commit_lock=asyncio.Lock(),
        owned=ownership,
    )


async def test_an_instance_writes_the_checkpoints_of_the_partitions_that_it_still_owns(world: TelemetryWorld) -> None:
    ownership = OwnedPartitions("a", PARTITIONS)
    async with world.uow.write() as tx:
        await tx.partitions.create_missing(PARTITIONS)
        for row in (await tx.partitions.list_all())[:2]:
            claimed = await tx.partitions.claim(row, "a", "log")
            assert claimed is not None
            ownership.add(claimed)
        await tx.partitions.claim((await tx.partitions.list_all())[0], "b", "log")
    worker = worker_of(world, ownership)
    await worker.write()
    assert await checkpointed(world) == {1}


async def test_no_batch_is_stored_between_taking_a_checkpoint_and_storing_it(world: TelemetryWorld) -> None:
    """Else an older checkpoint could replace one that a batch with late values has stored."""
    lock, held = asyncio.Lock(), []

    class WatchedUnitOfWork:
        def write(self, *args: Any, **more: Any) -> Any:
            held.append(lock.locked())
            return world.uow.write(*args, **more)

    worker = EngineCheckpointWorker(
        engine=world.engine,
        uow=cast("UnitOfWork[TelemetryTx]", WatchedUnitOfWork()),
        last_seen=LastSeenBuffer(),
        clock_offsets=ClockSkewService(uow=world.uow, clock=world.clock),
        engine_commit_lock=lock,
    )
    await worker.write()
    assert held == [True]
    assert not lock.locked()
