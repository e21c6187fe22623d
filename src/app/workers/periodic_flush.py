"""Writes buffered values every few seconds in one go: when API keys were last used, and how many requests were denied."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from domain.kernel.errors import Unavailable

INTERVAL_S = 5.0

log = structlog.get_logger("periodic_flush")


class PeriodicFlushWorker:
    name = "periodic_flush"

    def __init__(self, *, flushes: tuple[Callable[[], Awaitable[None]], ...]) -> None:
        self._flushes = flushes

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            for flush in self._flushes:
                try:
                    await flush()
                except Unavailable as error:
                    log.warning("the database does not answer; buffered values are written later", error=str(error))
