"""Stores how far steady time has come, for the next start and for the other instances."""

from __future__ import annotations

from dataclasses import field

from app.workers.due_task_worker import DueTaskWorker
from app.workers.wake_event import WakeEvent
from domain.kernel.dataclasses import service
from domain.kernel.steady_time import KEEP_INTERVAL_S, SteadyTimePersistenceService


@service
class SteadyTimeSavingWorker(DueTaskWorker):
    name = "steady_time"

    steady_time: SteadyTimePersistenceService
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)

    async def run_once(self) -> float:
        await self.steady_time.keep()
        return KEEP_INTERVAL_S
