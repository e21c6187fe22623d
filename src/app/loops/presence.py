"""Devices on notice: announced as gone when their grace is over. At the start, every device that was marked online."""

from __future__ import annotations

from app.loops.doorbell import Doorbell
from app.loops.waking import WakingLoop, until
from domain.devices.presence import PresenceService
from domain.kernel.clock import Clock


class PresenceLoop(WakingLoop):
    name = "presence"

    def __init__(self, *, presence: PresenceService, clock: Clock, bell: Doorbell) -> None:
        self._presence = presence
        self._clock = clock
        super().__init__(bell)
        self._recovered = False

    async def _work(self) -> float:
        if not self._recovered:
            await self._presence.recover()
            self._recovered = True
        while await self._presence.expire():
            pass
        return until(self._presence.next_due_ms(), self._clock.now_ms())
