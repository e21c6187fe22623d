"""Deletes the rows of deleted webhooks, for at most a quarter of the time, so that other writers are not delayed."""

from __future__ import annotations

import asyncio
import time

from app.workers.due_task_worker import MAX_SLEEP_S, DueTaskWorker
from domain.kernel.dataclasses import service
from domain.webhooks.delivery import DeletedWebhookCleanup

MIN_PAUSE_S = 0.005


@service
class DeletedWebhookCleanupWorker(DueTaskWorker):
    name = "webhook_cleanup"

    cleanup: DeletedWebhookCleanup

    async def run_once(self) -> float:
        while True:
            started = time.perf_counter()
            if not await self.cleanup.run_once():
                return MAX_SLEEP_S
            await asyncio.sleep(max(MIN_PAUSE_S, 3 * (time.perf_counter() - started)))
