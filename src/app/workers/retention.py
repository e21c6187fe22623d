"""Deletes expired rows once an hour, or earlier when disk space is low, and then gives their space back to the file system. It
does both in small steps with a pause after each, so that others can write in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from app.workers.wake_event import WakeEvent
from domain.kernel.errors import Unavailable
from domain.telemetry.retention import RetentionService

INITIAL_DELAY_S = 60.0
INTERVAL_S = 3_600.0
PAUSE_S = 0.02

log = structlog.get_logger("retention")


class RetentionWorker:
    name = "retention"

    def __init__(
        self, *, retention: RetentionService, release_space: Callable[[], Awaitable[int]], wake_event: WakeEvent
    ) -> None:
        """`release_space` does one step and returns what it released; 0 when there is no more."""
        self._retention = retention
        self._release_space = release_space
        self.wake_event = wake_event
        self.deleted_rows = 0

    async def run(self) -> None:
        await self.wake_event.wait(INITIAL_DELAY_S)
        while True:
            try:
                async for deleted in self._retention.purge_steps():
                    self.deleted_rows += deleted
                    await asyncio.sleep(PAUSE_S)
                while True:
                    if not await self._release_space():
                        break
                    await asyncio.sleep(PAUSE_S)
            except Unavailable as error:
                log.warning("the database does not answer; expired rows are deleted in the next round", error=str(error))
            await self.wake_event.wait(INTERVAL_S)
