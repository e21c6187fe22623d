"""Fires schedule slots at their due second, and publishes the plan of each device.

The worker sleeps until the earliest due second, and for at most half a minute, because the wall clock may be set meanwhile.
Lateness counts from when the service could have been on time: a slot that becomes due after a look that found nothing is not
missed, even when the clock was set forward, or when so many slots are due that the last ones wait. That time is the lateness
allowance. When nothing is due, the worker resolves the edges that were left to devices which are back.
"""

from __future__ import annotations

import asyncio
from dataclasses import field

import structlog

from app.workers.due import MAX_SLEEP_S, DueLoop, WakeEvent, seconds_until
from domain.kernel.clock import MAX_INSTANCE_SKEW_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.schedules.device_plan import DevicePlanSyncService
from domain.schedules.firing import ScheduleFiringService, SlotDecisionFailedError
from domain.schedules.left_edges import LeftEdgeResolver

CLAIM_RETRY_S = 0.1
"""Another instance has claimed the due slots; check again soon."""
MAX_PENDING_DEVICES = 100_000

log = structlog.get_logger("schedules")


@service
class ScheduleWorker(DueLoop):
    name = "schedules"

    firing: ScheduleFiringService
    left_edges: LeftEdgeResolver
    clock: Clock
    _caught_up_ms: int | None = field(default=None, init=False)
    """Unix ms of the last time when nothing was due, or of the first check."""
    fired: int = field(default=0, init=False)
    quarantined: int = field(default=0, init=False)
    lateness_ms: int = field(default=0, init=False)
    """How late the last edge was decided."""

    async def run_once(self) -> float:
        while True:
            now_ms = self.clock.now_ms()
            due_ts = await self.firing.next_due_ts()
            was_set_back = self._caught_up_ms is None or self._caught_up_ms > now_ms + MAX_INSTANCE_SKEW_MS
            if was_set_back and (healed := await self.firing.compute_anew(now_ms)):
                log.warning("slots that were decided by a clock that was ahead have their next edge anew", slots=healed)
                due_ts = await self.firing.next_due_ts()
            if self._caught_up_ms is None or self._caught_up_ms > now_ms:
                self._caught_up_ms = now_ms
            if due_ts is None or due_ts * SECOND_MS > now_ms:
                self._caught_up_ms = now_ms
                pause_ms = await self.left_edges.resolve_due()
                due_s = seconds_until(due_ts and due_ts * SECOND_MS, self.clock.now_ms())
                return min(due_s, seconds_until(pause_ms, 0))
            if not await self._fire_batches(self._caught_up_ms):
                return CLAIM_RETRY_S
            self.lateness_ms = self.clock.now_ms() - due_ts * SECOND_MS

    async def _fire_batches(self, caught_up_ms: int) -> int:
        """Fire batches until one is not full. Returns the number of slots."""
        total = 0
        while True:
            now_ms = self.clock.now_ms()
            fired = await self._fire_batch(now_ms, max(0, now_ms - caught_up_ms) // SECOND_MS)
            total += fired
            if fired < self.firing.batch_size:
                return total
            await asyncio.sleep(0)  # let other tasks run between batches

    async def _fire_batch(self, now_ms: int, lateness_allowance_s: int) -> int:
        try:
            fired = await self.firing.fire_due(now_ms, lateness_allowance_s=lateness_allowance_s)
        except SlotDecisionFailedError as error:
            self.quarantined += 1
            log.error("a slot failed and is quarantined", schedule_id=error.schedule.schedule_id, exc_info=error.__cause__)
            await self.firing.quarantine(error.schedule, now_ms)
            return 1
        self.fired += fired
        return fired


@service
class InProcessDevicePlanQueue:
    """Devices whose plan must be published. The queue is lost with the process, so the next start publishes all plans."""

    wake_event: WakeEvent
    is_all_pending: bool = field(default=True, init=False)
    """All plans must be published: the queue overflowed, or its content is not known."""

    _pending: dict[DeviceId, None] = field(default_factory=dict, init=False)

    def enqueue(self, device_id: DeviceId) -> None:
        """Implements `PlanPublisher` of the schedules part."""
        if len(self._pending) >= MAX_PENDING_DEVICES:
            self._pending.clear()
            self.is_all_pending = True
        self._pending[device_id] = None
        self.wake_event.set()

    def peek(self) -> DeviceId | None:
        return next(iter(self._pending), None)

    def remove(self, device_id: DeviceId) -> None:
        self._pending.pop(device_id, None)


@service
class DevicePlanWorker(DueLoop):
    name = "device_plans"

    plans: DevicePlanSyncService
    queue: InProcessDevicePlanQueue
    wake_event: WakeEvent = field(init=False)
    published: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.wake_event = self.queue.wake_event

    async def run_once(self) -> float:
        if self.queue.is_all_pending:
            for device_id in await self.plans.list_devices_with_plans():
                await self._publish(device_id)
            self.queue.is_all_pending = False
        while (queued := self.queue.peek()) is not None:
            await self._publish(queued)
        return MAX_SLEEP_S

    async def _publish(self, device_id: DeviceId) -> None:
        """Remove the device before reading its plan, so that a change meanwhile queues it again; on failure, put it back."""
        self.queue.remove(device_id)
        try:
            await self.plans.publish_plan(device_id)
        except Exception:
            self.queue.enqueue(device_id)
            raise
        self.published += 1
