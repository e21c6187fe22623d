"""Small things every few seconds, written for all at once: when keys were last used, and how often somebody was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from domain.kernel.errors import Unavailable

INTERVAL_S = 5.0

log = structlog.get_logger("tally")


class PeriodicFlushWorker:
    name = "tally"

    def __init__(self, *, flushes: tuple[Callable[[], Awaitable[None]], ...]) -> None:
        self._flushes = flushes

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            for flush in self._flushes:
                try:
                    await flush()
                except Unavailable as error:
                    log.warning("the database does not answer; this is written later", error=str(error))
