"""Takes away what deleted webhooks leave behind, never for more than a quarter of the time, so that it delays nobody."""

from __future__ import annotations

import asyncio
import time

from app.loops.doorbell import Doorbell
from app.loops.waking import LONGEST_SLEEP_S, WakingLoop
from domain.webhooks.leftovers import Leftovers

SHORTEST_PAUSE_S = 0.005


class LeftoverLoop(WakingLoop):
    name = "leftovers"

    def __init__(self, *, leftovers: Leftovers, bell: Doorbell) -> None:
        super().__init__(bell)
        self._leftovers = leftovers

    async def _work(self) -> float:
        while True:
            began = time.perf_counter()
            if not await self._leftovers.step():
                return LONGEST_SLEEP_S
            await asyncio.sleep(max(SHORTEST_PAUSE_S, 3 * (time.perf_counter() - began)))
