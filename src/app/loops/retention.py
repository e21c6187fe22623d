"""Forgets what is older than it is kept, an hour apart, in steps that leave the writer free in between."""

from __future__ import annotations

import asyncio

import structlog

from domain.kernel.errors import Unavailable
from domain.telemetry.retention import RetentionService

FIRST_AFTER_S = 60.0
EVERY_S = 3_600.0
REST_S = 0.02

log = structlog.get_logger("retention")


class RetentionLoop:
    name = "retention"

    def __init__(self, *, retention: RetentionService) -> None:
        self._retention = retention
        self.forgotten = 0

    async def run(self) -> None:
        await asyncio.sleep(FIRST_AFTER_S)
        while True:
            try:
                async for gone in self._retention.steps():
                    self.forgotten += gone
                    await asyncio.sleep(REST_S)
            except Unavailable as error:
                log.warning("the database does not answer; nothing is forgotten for now", error=str(error))
            await asyncio.sleep(EVERY_S)
