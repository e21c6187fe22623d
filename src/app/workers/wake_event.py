"""Wakes a loop that sleeps until something is due. Rung before anybody waits, it is heard at the next wait; rung twice, once."""

from __future__ import annotations

import asyncio


class WakeEvent:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """From the event loop's own thread only."""
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """True when rung, False when the time was up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
