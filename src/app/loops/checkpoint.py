"""The engine's last values and the devices' last-seen times, written every few seconds and once more at the end.

What a crash takes is no value: every reading is in its row before it is acknowledged, and at start the rows newer than a
device's checkpoint are replayed into the engine.
"""

from __future__ import annotations

import asyncio

import structlog

from app.loops.seen import Seen
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine
from domain.telemetry.ports import TelemetryTx

EVERY_S = 5.0
AT_ONCE = 2_000
"""Devices a transaction: a few milliseconds of the writer's time."""

log = structlog.get_logger("checkpoint")


class CheckpointLoop:
    name = "checkpoint"

    def __init__(self, *, engine: TelemetryEngine, uow: UnitOfWork[TelemetryTx], seen: Seen, turnstile: asyncio.Lock) -> None:
        self._engine = engine
        self._uow = uow
        self._seen = seen
        self._turnstile = turnstile

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.write()
            except Unavailable as error:
                log.warning("the database does not answer; the checkpoint waits", error=str(error))

    async def write(self) -> None:
        """Everything that changed since the last time, in bounded steps."""
        await self._write_seen()
        while True:
            async with self._turnstile:  # only committed values may become a checkpoint
                checkpoints = self._engine.checkpoint(AT_ONCE)
            if not checkpoints:
                return
            async with self._uow.write() as tx:
                await tx.readings.put_latest(checkpoints)
            if len(checkpoints) < AT_ONCE:
                return

    async def _write_seen(self) -> None:
        seen = self._seen.drain()
        if not seen:
            return
        try:
            async with self._uow.write() as tx:
                await tx.devices.touch(seen)
        except BaseException:
            self._seen.put_back(seen)
            raise
