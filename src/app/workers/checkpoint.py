"""The engine's last values and the devices' last-seen times, written every few seconds and once more at the end.

What a crash takes is no value: every reading is in its row before it is acknowledged, and at start the rows newer than a
device's checkpoint are replayed into the engine.
"""

from __future__ import annotations

import asyncio

import structlog

from app.workers.last_seen import LastSeenBuffer
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryEngine
from domain.telemetry.ports import TelemetryTx

INTERVAL_S = 5.0
BATCH_SIZE = 2_000
"""Devices a transaction: a few milliseconds of the writer's time."""

log = structlog.get_logger("checkpoint")


class CheckpointWorker:
    name = "checkpoint"

    def __init__(
        self, *, engine: TelemetryEngine, uow: UnitOfWork[TelemetryTx], seen: LastSeenBuffer, turnstile: asyncio.Lock
    ) -> None:
        self._engine = engine
        self._uow = uow
        self._last_seen = seen
        self._engine_commit_lock = turnstile

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.write()
            except Unavailable as error:
                log.warning("the database does not answer; the checkpoint waits", error=str(error))

    async def write(self) -> None:
        """Everything that changed since the last time, in bounded steps."""
        await self._write_last_seen()
        while True:
            async with self._engine_commit_lock:  # only committed values may become a checkpoint
                checkpoints = self._engine.checkpoint(BATCH_SIZE)
            if not checkpoints:
                return
            async with self._uow.write() as tx:
                await tx.readings.upsert_checkpoints(checkpoints)
            if len(checkpoints) < BATCH_SIZE:
                return

    async def _write_last_seen(self) -> None:
        seen = self._last_seen.drain()
        if not seen:
            return
        try:
            async with self._uow.write() as tx:
                await tx.devices.update_last_seen(seen)
        except BaseException:
            self._last_seen.put_back(seen)
            raise
