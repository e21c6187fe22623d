"""Small things every few seconds: when keys were last used, written for all of them at once."""

from __future__ import annotations

import asyncio

import structlog

from domain.kernel.errors import Unavailable
from domain.keys.callers import CallerService

EVERY_S = 5.0

log = structlog.get_logger("key_use")


class KeyUseLoop:
    name = "key_use"

    def __init__(self, *, callers: CallerService) -> None:
        self._callers = callers

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._callers.flush_used()
            except Unavailable as error:
                log.warning("the database does not answer; key use is written later", error=str(error))
