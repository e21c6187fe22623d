"""Writes the engine's latest values, the devices' last-seen times and their clocks' offsets every few seconds, and once more at
shutdown.

A crash loses no value: every reading is stored in its row before it is acknowledged, and at startup the engine replays the rows
that are newer than a device's checkpoint.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from app.workers.last_seen import LastSeenBuffer
from domain.devices.clock_offsets import ClockOffsetService
from domain.devices.ports import HasDevices
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryEngine
from domain.telemetry.ports import HasReadings

INTERVAL_S = 5.0
BATCH_SIZE = 2_000
"""Devices per transaction: a few milliseconds of the writer's time."""

log = structlog.get_logger("checkpoint")


class CheckpointTx(HasDevices, HasReadings, Protocol): ...


class CheckpointWorker:
    name = "checkpoint"

    def __init__(
        self,
        *,
        engine: TelemetryEngine,
        uow: UnitOfWork[CheckpointTx],
        last_seen: LastSeenBuffer,
        clock_offsets: ClockOffsetService,
        engine_commit_lock: asyncio.Lock,
    ) -> None:
        self._engine = engine
        self._uow = uow
        self._last_seen = last_seen
        self._clock_offsets = clock_offsets
        self._engine_commit_lock = engine_commit_lock

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
        while True:
            async with self._engine_commit_lock:  # a checkpoint may contain committed values only
                checkpoints = self._engine.checkpoint(BATCH_SIZE)
                self._clock_offsets.on_offsets(self._engine.clock_offsets([device_no for device_no, _, _ in checkpoints]))
            if not checkpoints:
                break
            async with self._uow.write(caller=None) as tx:
                await tx.readings.upsert_checkpoints(checkpoints)
            if len(checkpoints) < BATCH_SIZE:
                break
        await self._clock_offsets.write_pending()

    async def _write_last_seen(self) -> None:
        last_seen = self._last_seen.drain()
        if not last_seen:
            return
        try:
            async with self._uow.write(caller=None) as tx:
                await tx.devices.update_last_seen(last_seen)
        except BaseException:
            self._last_seen.put_back(last_seen)
            raise
