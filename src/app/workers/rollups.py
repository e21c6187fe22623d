"""Aggregates completed hours in small steps, and pauses after each step so that requests and devices can use the writer."""

from __future__ import annotations

import asyncio
from dataclasses import field

from app.workers.due_task_worker import DueTaskWorker
from app.workers.wake_event import WakeEvent
from domain.kernel.dataclasses import service
from domain.telemetry.rollups import RollupService

POLL_INTERVAL_S = 5.0
"""Finds hours that have received late readings; a poll costs one index seek."""
PAUSE_S = 0.01


@service
class RollupWorker(DueTaskWorker):
    name = "rollups"

    rollups: RollupService
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)
    processed_hours: int = field(default=0, init=False)
    """Hours of single devices that have been checked."""

    async def run_once(self) -> float:
        while processed := await self.rollups.run_once():
            self.processed_hours += processed
            await asyncio.sleep(PAUSE_S)
        return POLL_INTERVAL_S
