"""Wakes a worker that sleeps until something is due. Set before the wait, the event ends the next wait; set twice, it wakes
once."""

from __future__ import annotations

import asyncio


class WakeEvent:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Call this from the thread of the event loop only."""
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """True when the event was set, False when the time was up. Clears the event."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
