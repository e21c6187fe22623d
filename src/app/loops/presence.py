"""Devices on notice: announced as gone when their grace is over. At the start, every device that was marked online."""

from __future__ import annotations

import asyncio

import structlog

from app.loops.doorbell import Doorbell
from domain.devices.presence import PresenceService
from domain.kernel.clock import Clock

LONGEST_SLEEP_S = 30.0
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)

log = structlog.get_logger("presence")


class PresenceLoop:
    name = "presence"

    def __init__(self, *, presence: PresenceService, clock: Clock, bell: Doorbell) -> None:
        self._presence = presence
        self._clock = clock
        self._bell = bell
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        recovered = False
        while True:
            try:
                if not recovered:
                    await self._presence.recover()
                    recovered = True
                sleep_s = await self._work()
                attempt = 0
            except Exception as error:
                self.failures += 1
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                log.warning("presence waits", error=repr(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            await self._bell.wait(sleep_s)

    async def _work(self) -> float:
        while await self._presence.expire():
            pass
        due_ms = self._presence.next_due_ms()
        if due_ms is None:
            return LONGEST_SLEEP_S
        return min(max(0.001, (due_ms - self._clock.now_ms()) / 1000), LONGEST_SLEEP_S)
