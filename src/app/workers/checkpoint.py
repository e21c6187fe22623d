"""Writes the engine's latest values, the devices' last-seen times and their clocks' offsets every few seconds, and once more at
shutdown.

A crash loses no value: every reading is stored in its row before it is acknowledged, and at startup the engine replays the rows
that are newer than a device's checkpoint. A value whose row is not newer, a late one, is stored with a checkpoint of its device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from domain.devices.health import ClockSkewService, LastSeenBuffer
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.partitions.model import PartitionLostError
from domain.partitions.ownership import OwnedPartitions
from domain.rules.ports import Checkpoint, TelemetryEngine
from domain.telemetry.ports import TelemetryTx

INTERVAL_S = 5.0
BATCH_SIZE = 2_000
"""Devices per transaction: a few milliseconds of the writer's time."""

log = structlog.get_logger("checkpoint")


@service
class EngineCheckpointWorker:
    name = "checkpoint"

    engine: TelemetryEngine
    uow: UnitOfWork[TelemetryTx]
    last_seen: LastSeenBuffer
    clock_offsets: ClockSkewService
    engine_commit_lock: asyncio.Lock
    owned: OwnedPartitions | None = None
    """None where this instance has all devices."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.write()
            except Unavailable as error:
                log.warning("the database does not answer; the checkpoint waits", error=str(error))

    async def write(self) -> None:
        """Write everything that has changed since the last call, in bounded steps."""
        await self._write_last_seen()
        if self.owned is None:
            await self._write_checkpoints(self.engine.checkpoint)
        else:
            for partition in self.owned.partitions:
                try:
                    take = partial(self.engine.checkpoint_partition, partition, self.owned.count)
                    await self._write_checkpoints(take, partition)
                except PartitionLostError:
                    log.info("the partition has another owner; its checkpoint is not written", partition=partition)
        await self.clock_offsets.write_pending()

    async def _write_checkpoints(self, take: Callable[[int], list[Checkpoint]], partition: int | None = None) -> None:
        """Raises PartitionLostError."""
        while True:
            # A checkpoint may contain committed values only, and must not replace one that a later batch has stored.
            async with self.engine_commit_lock:
                checkpoints = take(BATCH_SIZE)
                self.clock_offsets.on_offsets(self.engine.clock_offsets([device_no for device_no, _, _ in checkpoints]))
                if checkpoints:
                    async with self.uow.write(caller=None) as tx:
                        if self.owned is not None and partition is not None:
                            await tx.partitions.require_owned([(partition, self.owned.epoch(partition))])
                        await tx.readings.upsert_checkpoints(checkpoints)
            if len(checkpoints) < BATCH_SIZE:
                break

    async def _write_last_seen(self) -> None:
        last_seen = self.last_seen.drain()
        if not last_seen:
            return
        try:
            async with self.uow.write(caller=None) as tx:
                await tx.devices.update_last_seen(last_seen)
        except BaseException:
            self.last_seen.put_back(last_seen)
            raise
