"""Deletes expired rows once an hour, or earlier when disk space is low, and then gives their space back to the file system. It
does both in small steps with a pause after each, so that others can write in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import field

import structlog

from app.workers.wake_event import WakeEvent
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.telemetry.retention import RetentionService

INITIAL_DELAY_S = 60.0
INTERVAL_S = 3_600.0
PAUSE_S = 0.02

log = structlog.get_logger("retention")


@service
class RetentionWorker:
    name = "retention"

    retention: RetentionService
    release_space: Callable[[], Awaitable[int]]
    """Does one step and returns what it released; 0 when there is no more."""

    wake_event: WakeEvent
    deleted_rows: int = field(default=0, init=False)

    async def run(self) -> None:
        await self.wake_event.wait(INITIAL_DELAY_S)
        while True:
            try:
                async for deleted in self.retention.purge_steps():
                    self.deleted_rows += deleted
                    await asyncio.sleep(PAUSE_S)
                while True:
                    if not await self.release_space():
                        break
                    await asyncio.sleep(PAUSE_S)
            except Unavailable as error:
                log.warning("the database does not answer; expired rows are deleted in the next round", error=str(error))
            await self.wake_event.wait(INTERVAL_S)
