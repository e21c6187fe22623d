"""Sums up hours that are over, in small steps with a rest in between, so that devices and people go first."""

from __future__ import annotations

import asyncio

from app.loops.doorbell import Doorbell
from app.loops.waking import WakingLoop
from domain.telemetry.rollup_service import RollupService

LOOK_EVERY_S = 5.0
"""For hours that readings have come to late; looking costs one seek."""
REST_S = 0.01


class RollupLoop(WakingLoop):
    name = "rollups"

    def __init__(self, *, rollups: RollupService) -> None:
        super().__init__(Doorbell())
        self._rollups = rollups
        self.marks = 0
        """Hours of devices that were looked at."""

    async def _work(self) -> float:
        while done := await self._rollups.step():
            self.marks += done
            await asyncio.sleep(REST_S)
        return LOOK_EVERY_S
