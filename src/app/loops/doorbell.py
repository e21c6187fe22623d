"""Wakes a loop that sleeps until something is due. Rung before anybody waits, it is heard at the next wait; rung twice, once."""

from __future__ import annotations

import asyncio


class Doorbell:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """From the event loop's own thread only."""
        self._rung.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """True when rung, False when the time was up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True
