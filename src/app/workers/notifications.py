"""Sends the notifications that events owe, on whichever instance is first."""

from __future__ import annotations

from app.workers.base_worker import DueTaskWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.kernel.clock import Clock
from domain.notifications.delivery import NotificationDeliveryService


class NotificationWorker(DueTaskWorker):
    name = "notifications"

    def __init__(self, *, notifications: NotificationDeliveryService, clock: Clock, wake_event: WakeEvent) -> None:
        super().__init__(wake_event)
        self._notifications = notifications
        self._clock = clock

    async def run_once(self) -> float:
        while await self._notifications.send_due():
            pass
        return seconds_until(await self._notifications.next_due_ms(), self._clock.steady_ms())
