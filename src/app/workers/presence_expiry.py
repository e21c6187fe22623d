"""Sets devices offline when their grace period ends. After a start, every device that was online gets a grace period."""

from __future__ import annotations

from app.workers.base_worker import DueTaskWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.devices.presence import PresenceService
from domain.kernel.clock import Clock


class PresenceExpiryWorker(DueTaskWorker):
    name = "presence"

    def __init__(self, *, presence: PresenceService, clock: Clock, wake_event: WakeEvent) -> None:
        super().__init__(wake_event)
        self._presence = presence
        self._clock = clock

    async def run_once(self) -> float:
        if self._presence.needs_recovery:
            await self._presence.recover()
        while await self._presence.expire_due():
            pass
        return seconds_until(self._presence.next_due_ms(), self._clock.monotonic_ms())
