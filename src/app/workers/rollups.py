"""Sums up hours that are over, in small steps with a rest in between, so that devices and people go first."""

from __future__ import annotations

import asyncio

from app.workers.base_worker import DueWorker
from app.workers.wake_event import WakeEvent
from domain.telemetry.rollup_service import RollupService

POLL_INTERVAL_S = 5.0
"""For hours that readings have come to late; looking costs one seek."""
PAUSE_S = 0.01


class RollupWorker(DueWorker):
    name = "rollups"

    def __init__(self, *, rollups: RollupService) -> None:
        super().__init__(WakeEvent())
        self._rollups = rollups
        self.processed_hours = 0
        """Hours of devices that were looked at."""

    async def run_once(self) -> float:
        while done := await self._rollups.run_once():
            self.processed_hours += done
            await asyncio.sleep(PAUSE_S)
        return POLL_INTERVAL_S
