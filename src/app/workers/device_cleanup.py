"""What a request could not finish: readings of deleted devices, and changes that the link did not take.

Runs once at the start, for what a crash left behind, and then when the bell says that there is something. It erases for a third
of the time at the most: who else writes finds the writer free after each step.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from app.workers.base_worker import seconds_until
from app.workers.wake_event import WakeEvent
from domain.devices.credential_sync import CredentialSync
from domain.devices.erasure import DeviceErasureService
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.clock import Clock

MAX_SLEEP_S = 3600.0
MIN_PAUSE_S = 0.002
MAX_PAUSE_S = 1.0

log = structlog.get_logger("device_upkeep")


class DeviceCleanupWorker:
    name = "device_upkeep"

    def __init__(self, *, erasure: DeviceErasureService, admission: CredentialSync, clock: Clock, bell: WakeEvent) -> None:
        self._erasure = erasure
        self._credential_sync = admission
        self._clock = clock
        self._wake_event = bell
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        while True:
            settled, due_ms = False, None
            try:
                settled = await self._credential_sync.retry_pending()
                due_ms = await self._erasure.erase_pending(ProportionalPause())
            except Exception as error:
                self.failures += 1
                settled = False
                log.warning("upkeep of devices waits", error=repr(error), attempt=attempt)
            if settled:
                attempt = 0
                await self._wake_event.wait(seconds_until(due_ms, self._clock.now_ms(), MAX_SLEEP_S))
            else:
                log.warning("the device link does not take a change; it is told again", owed=self._credential_sync.pending_count)
                attempt += 1
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))


class ProportionalPause:
    """Twice as long as the step before it took."""

    def __init__(self) -> None:
        self._step_began = time.perf_counter()

    async def __call__(self) -> None:
        took = time.perf_counter() - self._step_began
        await asyncio.sleep(min(max(MIN_PAUSE_S, 2 * took), MAX_PAUSE_S))
        self._step_began = time.perf_counter()
