"""Aggregates completed hours in small steps, and pauses after each step so that requests and devices can use the writer."""

from __future__ import annotations

import asyncio

from app.workers.base_worker import DueTaskWorker
from app.workers.wake_event import WakeEvent
from domain.telemetry.rollup_service import RollupService

POLL_INTERVAL_S = 5.0
"""Finds hours that have received late readings; a poll costs one index seek."""
PAUSE_S = 0.01


class RollupWorker(DueTaskWorker):
    name = "rollups"

    def __init__(self, *, rollups: RollupService) -> None:
        super().__init__(WakeEvent())
        self._rollups = rollups
        self.processed_hours = 0
        """Hours of single devices that have been checked."""

    async def run_once(self) -> float:
        while processed := await self._rollups.run_once():
            self.processed_hours += processed
            await asyncio.sleep(PAUSE_S)
        return POLL_INTERVAL_S
