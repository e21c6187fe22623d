"""Stores how far steady time has come, for the next start and for the other instances."""

from __future__ import annotations

from app.workers.base_worker import DueTaskWorker
from app.workers.wake_event import WakeEvent
from domain.kernel.steady_time import KEEP_INTERVAL_S, SteadyTimeService


class SteadyTimeWorker(DueTaskWorker):
    name = "steady_time"

    def __init__(self, *, steady_time: SteadyTimeService) -> None:
        super().__init__(WakeEvent())
        self._steady_time = steady_time

    async def run_once(self) -> float:
        await self._steady_time.keep()
        return KEEP_INTERVAL_S
