"""Forgets what is older than it is kept, an hour apart, in steps that leave the writer free in between."""

from __future__ import annotations

import asyncio

import structlog

from domain.kernel.errors import Unavailable
from domain.telemetry.retention import RetentionService

INITIAL_DELAY_S = 60.0
INTERVAL_S = 3_600.0
PAUSE_S = 0.02

log = structlog.get_logger("retention")


class RetentionWorker:
    name = "retention"

    def __init__(self, *, retention: RetentionService) -> None:
        self._retention = retention
        self.deleted_rows = 0

    async def run(self) -> None:
        await asyncio.sleep(INITIAL_DELAY_S)
        while True:
            try:
                async for gone in self._retention.purge_steps():
                    self.deleted_rows += gone
                    await asyncio.sleep(PAUSE_S)
            except Unavailable as error:
                log.warning("the database does not answer; nothing is forgotten for now", error=str(error))
            await asyncio.sleep(INTERVAL_S)
