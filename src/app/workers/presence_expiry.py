"""Sets devices offline when their grace period ends. After a start, every device that was online gets a grace period."""

from __future__ import annotations

from app.workers.due_task_worker import DueTaskWorker, seconds_until
from domain.devices.presence import PresenceService
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service


@service
class PresenceExpiryWorker(DueTaskWorker):
    name = "presence"

    presence: PresenceService
    clock: Clock

    async def run_once(self) -> float:
        if self.presence.needs_recovery:
            await self.presence.recover()
        while await self.presence.expire_due():
            pass
        return seconds_until(self.presence.next_due_ms(), self.clock.monotonic_ms())
