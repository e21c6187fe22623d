"""The ticker: wakes at the earliest due second of all slots, and once to publish each device's own plan.

It sleeps until something is due, never longer than half a minute, since the wall clock may be set meanwhile. What became due
after a look that found nothing has not been missed, only not been reached: the clock was set forward, or so many are due at once
that the last ones wait. Such time is forgiven; lateness counts from when the service was there to be in time.
"""

from __future__ import annotations

import asyncio

import structlog

from app.loops.doorbell import Doorbell
from app.loops.waking import LONGEST_SLEEP_S, WakingLoop, until
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.ids import DeviceId
from domain.schedules.firing import BATCH, FiringService, Stuck
from domain.schedules.plans import PlanService

ELSEWHERE_S = 0.1
"""What is due is in another instance's hands; look again soon."""
MAX_WAITING = 100_000

log = structlog.get_logger("schedules")


class ScheduleLoop(WakingLoop):
    name = "schedules"

    def __init__(self, *, firing: FiringService, clock: Clock, bell: Doorbell) -> None:
        super().__init__(bell)
        self._firing = firing
        self._clock = clock
        self._caught_up_ms: int | None = None
        """When nothing was due, or since when we have been looking."""
        self.fired = 0
        self.set_aside = 0
        self.late_ms = 0
        """By how much the edge decided last was late."""

    async def _work(self) -> float:
        """Run all that is due; returns for how long there is nothing, in seconds."""
        while True:
            now_ms = self._clock.now_ms()
            due_ts = await self._firing.next_due_ts()
            if self._caught_up_ms is None or self._caught_up_ms > now_ms:
                self._caught_up_ms = now_ms
            if due_ts is None or due_ts * SECOND_MS > now_ms:
                self._caught_up_ms = now_ms
                return until(None if due_ts is None else due_ts * SECOND_MS, self._clock.now_ms())
            if not await self._fire_all(self._caught_up_ms):
                return ELSEWHERE_S
            self.late_ms = self._clock.now_ms() - due_ts * SECOND_MS

    async def _fire_all(self, caught_up_ms: int) -> int:
        """Batch after batch while they are full; how many slots that were."""
        total = 0
        while True:
            now_ms = self._clock.now_ms()
            fired = await self._fire(now_ms, max(0, now_ms - caught_up_ms) // SECOND_MS)
            total += fired
            if fired < BATCH:
                return total
            await asyncio.sleep(0)  # a turn for everybody; and while the database works on a batch, the loop is theirs

    async def _fire(self, now_ms: int, forgiven_s: int) -> int:
        try:
            fired = await self._firing.fire_due(now_ms, forgiven_s=forgiven_s)
        except Stuck as stuck:
            self.set_aside += 1
            log.error("a slot is set aside", schedule_id=stuck.schedule.schedule_id, exc_info=stuck.__cause__)
            await self._firing.set_aside(stuck.schedule, now_ms)
            return 1
        self.fired += fired
        return fired


class PlanOutbox:
    """Devices whose plan is to be published. Lost with the process, and then made up for by publishing all."""

    def __init__(self, bell: Doorbell) -> None:
        self.bell = bell
        """Rung with each mark."""
        self._waiting: dict[DeviceId, None] = {}
        self.all_of_them = True
        """So many are waiting, or nobody knows which, that all are published."""

    def mark(self, device_id: DeviceId) -> None:
        """The schedules part's `PlanPublisher`."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.clear()
            self.all_of_them = True
        self._waiting[device_id] = None
        self.bell.ring()

    def first(self) -> DeviceId | None:
        return next(iter(self._waiting), None)

    def done(self, device_id: DeviceId) -> None:
        self._waiting.pop(device_id, None)


class PlanLoop(WakingLoop):
    name = "plans"

    def __init__(self, *, plans: PlanService, outbox: PlanOutbox) -> None:
        super().__init__(outbox.bell)
        self._plans = plans
        self._outbox = outbox
        self.published = 0

    async def _work(self) -> float:
        if self._outbox.all_of_them:
            for known in await self._plans.devices_with_plans():
                await self._publish(known)
            self._outbox.all_of_them = False
        while (marked := self._outbox.first()) is not None:
            await self._publish(marked)
        return LONGEST_SLEEP_S

    async def _publish(self, device_id: DeviceId) -> None:
        """Taken off before it is read, so that a change meanwhile marks it again; put back if it could not be sent."""
        self._outbox.done(device_id)
        try:
            await self._plans.sync_plan(device_id)
        except Exception:
            self._outbox.mark(device_id)
            raise
        self.published += 1
