"""Finishes what a request could not: deletes the readings of deleted devices, and retries credential changes the link did not
take.

The worker runs once at the start, because a crash may have left work behind, and then whenever its wake event is set. It deletes
for at most a third of the time, so that other writers find the database free after each step.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import field

import structlog

from app.workers.due_task_worker import seconds_until
from app.workers.wake_event import WakeEvent
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.erasure import DeviceErasureService
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service

MAX_SLEEP_S = 3600.0
MIN_PAUSE_S = 0.002
MAX_PAUSE_S = 1.0

log = structlog.get_logger("device_cleanup")


@service
class DeviceErasureAndCredentialSyncWorker:
    name = "device_cleanup"

    erasure: DeviceErasureService
    credential_sync: CredentialSyncService
    clock: Clock
    wake_event: WakeEvent
    failures: int = field(default=0, init=False)

    async def run(self) -> None:
        attempt = 0
        while True:
            synced, due_ms = False, None
            try:
                synced = await self.credential_sync.retry_pending()
                due_ms = await self.erasure.erase_pending(ProportionalPause())
            except Exception as error:
                self.failures += 1
                synced = False
                log.warning("the device cleanup failed and tries again", error=repr(error), attempt=attempt)
            if synced:
                attempt = 0
                await self.wake_event.wait(seconds_until(due_ms, self.clock.now_ms(), MAX_SLEEP_S))
            else:
                pending = len(self.credential_sync.pending)
                log.warning("the device link did not take a change of credentials; it is sent again", pending=pending)
                attempt += 1
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))


class ProportionalPause:
    """Sleeps twice as long as the step before took."""

    def __init__(self) -> None:
        self._step_started = time.perf_counter()

    async def __call__(self) -> None:
        step_s = time.perf_counter() - self._step_started
        await asyncio.sleep(min(max(MIN_PAUSE_S, 2 * step_s), MAX_PAUSE_S))
        self._step_started = time.perf_counter()
