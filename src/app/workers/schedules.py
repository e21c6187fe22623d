"""The ticker: wakes at the earliest due second of all slots, and once to publish each device's own plan.

It sleeps until something is due, never longer than half a minute, since the wall clock may be set meanwhile. What became due
after a look that found nothing has not been missed, only not been reached: the clock was set forward, or so many are due at once
that the last ones wait. Such time is forgiven; lateness counts from when the service was there to be in time.
"""

from __future__ import annotations

import asyncio

import structlog

from app.workers.base_worker import MAX_SLEEP_S, DueWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.ids import DeviceId
from domain.schedules.device_plan_sync import DevicePlanService
from domain.schedules.firing import BATCH_SIZE, ScheduleFiringService, UndecidableSlotError

CLAIM_RETRY_S = 0.1
"""What is due is in another instance's hands; look again soon."""
MAX_PENDING_DEVICES = 100_000

log = structlog.get_logger("schedules")


class ScheduleWorker(DueWorker):
    name = "schedules"

    def __init__(self, *, firing: ScheduleFiringService, clock: Clock, bell: WakeEvent) -> None:
        super().__init__(bell)
        self._firing = firing
        self._clock = clock
        self._caught_up_ms: int | None = None
        """When nothing was due, or since when we have been looking."""
        self.fired = 0
        self.quarantined = 0
        self.lateness_ms = 0
        """By how much the edge decided last was late."""

    async def run_once(self) -> float:
        """Run all that is due; returns for how long there is nothing, in seconds."""
        while True:
            now_ms = self._clock.now_ms()
            due_ts = await self._firing.next_due_ts()
            if self._caught_up_ms is None or self._caught_up_ms > now_ms:
                self._caught_up_ms = now_ms
            if due_ts is None or due_ts * SECOND_MS > now_ms:
                self._caught_up_ms = now_ms
                return seconds_until(None if due_ts is None else due_ts * SECOND_MS, self._clock.now_ms())
            if not await self._fire_batches(self._caught_up_ms):
                return CLAIM_RETRY_S
            self.lateness_ms = self._clock.now_ms() - due_ts * SECOND_MS

    async def _fire_batches(self, caught_up_ms: int) -> int:
        """Batch after batch while they are full; how many slots that were."""
        total = 0
        while True:
            now_ms = self._clock.now_ms()
            fired = await self._fire_batch(now_ms, max(0, now_ms - caught_up_ms) // SECOND_MS)
            total += fired
            if fired < BATCH_SIZE:
                return total
            await asyncio.sleep(0)  # a turn for everybody; and while the database works on a batch, the loop is theirs

    async def _fire_batch(self, now_ms: int, forgiven_s: int) -> int:
        try:
            fired = await self._firing.fire_due(now_ms, forgiven_s=forgiven_s)
        except UndecidableSlotError as stuck:
            self.quarantined += 1
            log.error("a slot is set aside", schedule_id=stuck.schedule.schedule_id, exc_info=stuck.__cause__)
            await self._firing.quarantine(stuck.schedule, now_ms)
            return 1
        self.fired += fired
        return fired


class DevicePlanQueue:
    """Devices whose plan is to be published. Lost with the process, and then made up for by publishing all."""

    def __init__(self, bell: WakeEvent) -> None:
        self.wake_event = bell
        """Rung with each mark."""
        self._pending: dict[DeviceId, None] = {}
        self.is_all_pending = True
        """So many are waiting, or nobody knows which, that all are published."""

    def enqueue(self, device_id: DeviceId) -> None:
        """The schedules part's `PlanPublisher`."""
        if len(self._pending) >= MAX_PENDING_DEVICES:
            self._pending.clear()
            self.is_all_pending = True
        self._pending[device_id] = None
        self.wake_event.set()

    def peek(self) -> DeviceId | None:
        return next(iter(self._pending), None)

    def remove(self, device_id: DeviceId) -> None:
        self._pending.pop(device_id, None)


class DevicePlanWorker(DueWorker):
    name = "plans"

    def __init__(self, *, plans: DevicePlanService, outbox: DevicePlanQueue) -> None:
        super().__init__(outbox.wake_event)
        self._plans = plans
        self._queue = outbox
        self.published = 0

    async def run_once(self) -> float:
        if self._queue.is_all_pending:
            for known in await self._plans.list_devices_with_plans():
                await self._publish(known)
            self._queue.is_all_pending = False
        while (marked := self._queue.peek()) is not None:
            await self._publish(marked)
        return MAX_SLEEP_S

    async def _publish(self, device_id: DeviceId) -> None:
        """Taken off before it is read, so that a change meanwhile marks it again; put back if it could not be sent."""
        self._queue.remove(device_id)
        try:
            await self._plans.publish_plan(device_id)
        except Exception:
            self._queue.enqueue(device_id)
            raise
        self.published += 1
