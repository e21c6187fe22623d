"""Takes away what deleted webhooks leave behind, never for more than a quarter of the time, so that it delays nobody."""

from __future__ import annotations

import asyncio
import time

from app.workers.base_worker import MAX_SLEEP_S, DueWorker
from app.workers.wake_event import WakeEvent
from domain.webhooks.cleanup import WebhookCleanup

MIN_PAUSE_S = 0.005


class WebhookCleanupWorker(DueWorker):
    name = "leftovers"

    def __init__(self, *, leftovers: WebhookCleanup, bell: WakeEvent) -> None:
        super().__init__(bell)
        self._cleanup = leftovers

    async def run_once(self) -> float:
        while True:
            began = time.perf_counter()
            if not await self._cleanup.run_once():
                return MAX_SLEEP_S
            await asyncio.sleep(max(MIN_PAUSE_S, 3 * (time.perf_counter() - began)))
