"""Expires approvals that nobody decided in time; each expires once, on whichever instance is first.

The worker wakes when a command begins to wait for approval, and at the earliest expiry.

Seals the event log once an hour.

Deletes the rows of deleted webhooks, for at most a quarter of the time, so that other writers are not delayed.

Writes what was dropped of the messages of devices: `health.lastDrop` and the event `device_message_dropped`.

Sends the notifications that events owe, on whichever instance is first.

Sets devices offline when their grace period ends. After a start, every device that was online gets a grace period.

Aggregates completed hours in small steps, and pauses after each step so that requests and devices can use the writer.

Stores how far steady time has come, for the next start and for the other instances.

Writes buffered values every few seconds in one go: when API keys were last used, and how many requests were denied.

Finishes what a request could not: deletes the readings of deleted devices, and retries credential changes the link did not
take.

The worker runs once at the start, because a crash may have left work behind, and then whenever its wake event is set. It deletes
for at most a third of the time, so that other writers find the database free after each step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Any

import structlog

from app.workers.due import MAX_SLEEP_S, DueTaskWorker, WakeEvent, seconds_until
from domain.approvals.service import ApprovalService
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
from domain.notifications.delivery import NotificationDeliveryService
from domain.telemetry.rollups import RollupService
from domain.webhooks.delivery import DeletedWebhookCleanup


@service
class ApprovalExpiryWorker(DueTaskWorker):
    name = "approvals"

    approvals: ApprovalService[Any]
    clock: Clock
    pending_count: int = field(default=0, init=False)
    """Approvals that waited at the last run, in all accounts."""

    async def run_once(self) -> float:
        while await self.approvals.expire_due():
            pass
        self.pending_count = await self.approvals.count_pending()
        return seconds_until(await self.approvals.next_expiry_ms(), self.clock.now_ms())


@service
class AuditSealWorker(DueTaskWorker):
    name = "audit_seals"

    seals: AuditSealService
    clock: Clock
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)

    async def run_once(self) -> float:
        due_ms = await self.seals.next_due_ms()
        if due_ms <= self.clock.now_ms():
            await self.seals.seal()
            due_ms = await self.seals.next_due_ms()
        return seconds_until(due_ms, self.clock.now_ms())


WEBHOOK_CLEANUP_PAUSE_S = 0.005


@service
class DeletedWebhookCleanupWorker(DueTaskWorker):
    name = "webhook_cleanup"

    cleanup: DeletedWebhookCleanup

    async def run_once(self) -> float:
        while True:
            started = time.perf_counter()
            if not await self.cleanup.run_once():
                return MAX_SLEEP_S
            await asyncio.sleep(max(WEBHOOK_CLEANUP_PAUSE_S, 3 * (time.perf_counter() - started)))


DROPPED_MESSAGES_PAUSE_S = 1.0
"""Between two writes: a fleet that sends nonsense costs one transaction a second."""


@service
class DroppedMessageWorker(DueTaskWorker):
    name = "dropped_messages"

    dropped_messages: DroppedMessageService

    async def run_once(self) -> float:
        await self.dropped_messages.write_pending()
        await asyncio.sleep(DROPPED_MESSAGES_PAUSE_S)
        return MAX_SLEEP_S


@service
class NotificationDeliveryWorker(DueTaskWorker):
    name = "notifications"

    notifications: NotificationDeliveryService
    clock: Clock

    async def run_once(self) -> float:
        while await self.notifications.send_due():
            pass
        return seconds_until(await self.notifications.next_due_ms(), self.clock.steady_ms())


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


ROLLUP_POLL_INTERVAL_S = 5.0
"""Finds hours that have received late readings; a poll costs one index seek."""
ROLLUP_PAUSE_S = 0.01


@service
class RollupWorker(DueTaskWorker):
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
class SteadyTimeSavingWorker(DueTaskWorker):
    name = "steady_time"

    steady_time: SteadyTimePersistenceService
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)

    async def run_once(self) -> float:
        await self.steady_time.keep()
        return KEEP_INTERVAL_S


FLUSH_INTERVAL_S = 5.0

log = structlog.get_logger("periodic_flush")


class PeriodicFlushWorker:
    name = "periodic_flush"

    def __init__(self, *, flushes: tuple[Callable[[], Awaitable[None]], ...]) -> None:
        self._flushes = flushes

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            for flush in self._flushes:
                try:
                    await flush()
                except Unavailable as error:
                    log.warning("the database does not answer; buffered values are written later", error=str(error))


DEVICE_CLEANUP_SLEEP_S = 3600.0
DEVICE_CLEANUP_PAUSE_S = 0.002
MAX_DEVICE_CLEANUP_PAUSE_S = 1.0

device_cleanup_log = structlog.get_logger("device_cleanup")


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
                device_cleanup_log.warning("the device cleanup failed and tries again", error=repr(error), attempt=attempt)
            if synced:
                attempt = 0
                await self.wake_event.wait(seconds_until(due_ms, self.clock.now_ms(), DEVICE_CLEANUP_SLEEP_S))
            else:
                pending = len(self.credential_sync.pending)
                device_cleanup_log.warning(
                    "the device link did not take a change of credentials; it is sent again", pending=pending
                )
                attempt += 1
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))


class ProportionalPause:
    """Sleeps twice as long as the step before took."""

    def __init__(self) -> None:
        self._step_started = time.perf_counter()

    async def __call__(self) -> None:
        step_s = time.perf_counter() - self._step_started
        await asyncio.sleep(min(max(DEVICE_CLEANUP_PAUSE_S, 2 * step_s), MAX_DEVICE_CLEANUP_PAUSE_S))
        self._step_started = time.perf_counter()
