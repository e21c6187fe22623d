"""Small background loops: what is due now and then, and takes a moment.

Each function is one round of a loop and returns the seconds until the next; the wiring makes a `DueWorker` of it. The classes
keep something between their rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import field

import structlog

from app.workers.due import MAX_SLEEP_S, DueLoop, WakeEvent, seconds_until
from domain.audit.seals import AuditSealService
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.erasure import DeviceErasureService
from domain.devices.health import DroppedMessageService
from domain.devices.presence import PresenceService
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.steady_time import KEEP_INTERVAL_S, SteadyTimePersistenceService
from domain.telemetry.rollups import RollupService
from domain.webhooks.delivery import DeletedWebhookCleanup
from domain.webhooks.recovery import WebhookRecoveryService

DROPPED_MESSAGES_INTERVAL_S = 1.0
"""Shortest time between two writes: a fleet that sends nonsense costs one transaction a second."""
ROLLUP_POLL_INTERVAL_S = 5.0
"""Finds hours that have received late readings; a poll costs one index seek."""
ROLLUP_PAUSE_S = 0.01
FLUSH_INTERVAL_S = 5.0
RECOVERY_PAUSE_S = 0.05
"""Between two deliveries that a webhook gets again: at most 20 in a second."""
RECOVERY_LOOKS = 20
"""How often it looks for the end of an attempt before it takes the receivers for slow."""
RECOVERY_POLL_INTERVAL_S = 1.0
"""While all recoveries wait for a slow receiver or a retry."""
CLEANUP_INTERVAL_S = 3_600.0
"""Of deleted devices, when nothing wakes the worker earlier."""


@service
class ProportionalPause:
    """Sleeps `times` as long as the step before took, so that other writers find the database free after each step."""

    times: int
    shortest_s: float
    longest_s: float = float("inf")
    _step_started: float = field(default_factory=time.perf_counter, init=False)

    async def __call__(self) -> None:
        step_s = time.perf_counter() - self._step_started
        await asyncio.sleep(min(max(self.shortest_s, self.times * step_s), self.longest_s))
        self._step_started = time.perf_counter()


async def keep_steady_time(steady_time: SteadyTimePersistenceService) -> float:
    """Store how far steady time has come, for the next start and for the other instances."""
    await steady_time.keep()
    return KEEP_INTERVAL_S


async def expire_presence(presence: PresenceService, clock: Clock) -> float:
    """Set devices offline when their grace period ends. After a start, every device that was online gets a grace period."""
    if presence.needs_recovery:
        await presence.recover()
    while await presence.expire_due():
        pass
    return seconds_until(presence.next_due_ms(), clock.monotonic_ms())


async def write_dropped_messages(dropped_messages: DroppedMessageService) -> float:
    """Write what was dropped of the messages of devices and what they were refused: `health.lastDrop`, `health.lastRefusal` and
    the events `device_message_dropped` and `device_refused`."""
    await dropped_messages.write_pending()
    await asyncio.sleep(DROPPED_MESSAGES_INTERVAL_S)
    return MAX_SLEEP_S


async def seal_event_log(seals: AuditSealService, clock: Clock) -> float:
    """Once an hour."""
    due_ms = await seals.next_due_ms()
    if due_ms <= clock.now_ms():
        await seals.seal()
        due_ms = await seals.next_due_ms()
    return seconds_until(due_ms, clock.now_ms())


async def delete_rows_of_deleted_webhooks(cleanup: DeletedWebhookCleanup) -> float:
    """For at most a quarter of the time."""
    pause = ProportionalPause(times=3, shortest_s=0.005)
    while await cleanup.run_once():
        await pause()
    return MAX_SLEEP_S


async def recover_webhooks(recoveries: WebhookRecoveryService) -> float:
    """Go on with what webhooks get again, a delivery of each in turn. It pauses most of the time, so that others can write."""
    pause = ProportionalPause(times=3, shortest_s=RECOVERY_PAUSE_S)
    fruitless = 0
    while fruitless < RECOVERY_LOOKS:
        fruitless = 0 if await recoveries.run_once() else fruitless + 1
        if not await recoveries.has_any():
            return MAX_SLEEP_S
        await pause()
    return RECOVERY_POLL_INTERVAL_S


@service
class RollupWorker(DueLoop):
    """Aggregates completed hours in small steps, with a pause after each, so that requests and devices can use the writer."""

    name = "rollups"

    rollups: RollupService
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)
    processed_hours: int = field(default=0, init=False)
    """Hours of single devices that have been checked."""

    async def run_once(self) -> float:
        while processed := await self.rollups.run_once():
            self.processed_hours += processed
            await asyncio.sleep(ROLLUP_PAUSE_S)
        return ROLLUP_POLL_INTERVAL_S


@service
class PeriodicFlushWorker:
    """Writes buffered values in one go: when API keys were last used, and how many requests were denied."""

    name = "periodic_flush"

    flushes: tuple[Callable[[], Awaitable[None]], ...]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            for flush in self.flushes:
                try:
                    await flush()
                except Unavailable as error:
                    log = structlog.get_logger(self.name)
                    log.warning("the database does not answer; buffered values are written later", error=str(error))


@service
class DeviceCleanupWorker:
    """Finishes what a request could not: deletes the readings of deleted devices, and retries credential changes the link did
    not take.

    It runs once at the start, because a crash may have left work behind, and then whenever its wake event is set. It deletes for
    at most a third of the time."""

    name = "device_cleanup"

    erasure: DeviceErasureService
    credential_sync: CredentialSyncService
    clock: Clock
    wake_event: WakeEvent
    failures: int = field(default=0, init=False)

    async def run(self) -> None:
        log, attempt = structlog.get_logger(self.name), 0
        while True:
            synced, due_ms = False, None
            try:
                synced = await self.credential_sync.retry_pending()
                due_ms = await self.erasure.erase_pending(ProportionalPause(times=2, shortest_s=0.002, longest_s=1.0))
            except Exception as error:
                self.failures += 1
                synced = False
                log.warning("the device cleanup failed and tries again", error=repr(error), attempt=attempt)
            if synced:
                attempt = 0
                await self.wake_event.wait(seconds_until(due_ms, self.clock.now_ms(), CLEANUP_INTERVAL_S))
            else:
                pending = len(self.credential_sync.pending)
                log.warning("the device link did not take a change of credentials; it is sent again", pending=pending)
                attempt += 1
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))
