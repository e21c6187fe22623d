"""Commands on their way to devices, and those whose time is up: the one place from which commands are sent.

Woken by the bell (something was queued, a device listens) or by the next deadline; between these it sleeps. The slow look-again
covers what no bell of this process tells: a command that another instance queued, or a clock that was set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from app.loops.doorbell import Doorbell
from domain.commands.dispatch import DispatchService
from domain.kernel.clock import Clock

LONGEST_SLEEP_S = 30.0
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)

log = structlog.get_logger("dispatch")


class DispatchLoop:
    name = "dispatch"

    def __init__(self, *, dispatch: DispatchService, clock: Clock, bell: Doorbell) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._bell = bell
        self.failures = 0

    def ready(self, device_nos: Sequence[int]) -> None:
        """These devices now hear their commands."""
        for device_no in device_nos:
            self._dispatch.on_device_ready(device_no)

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                sleep_s = await self._work()
                attempt = 0
            except Exception as error:
                self.failures += 1
                sleep_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                log.warning("commands wait", error=repr(error), attempt=attempt, pause_s=sleep_s)
                await asyncio.sleep(sleep_s)
                continue
            if not await self._bell.wait(sleep_s) and sleep_s >= LONGEST_SLEEP_S:
                self._dispatch.look_again()

    async def _work(self) -> float:
        """All there is to do now; returns for how long there is nothing, in seconds."""
        while await self._dispatch.send_queued():
            pass
        due_ms = await self._dispatch.next_expiry_ms()
        while due_ms is not None and due_ms <= self._clock.now_ms():
            while await self._dispatch.expire():
                pass
            due_ms = await self._dispatch.next_expiry_ms()
        if due_ms is None:
            return LONGEST_SLEEP_S
        return min(max(0.001, (due_ms - self._clock.now_ms()) / 1000), LONGEST_SLEEP_S)
