"""Sends the notifications that events owe, on whichever instance is first."""

from __future__ import annotations

from app.workers.due_task_worker import DueTaskWorker, seconds_until
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.notifications.delivery import NotificationDeliveryService


@service
class NotificationDeliveryWorker(DueTaskWorker):
    name = "notifications"

    notifications: NotificationDeliveryService
    clock: Clock

    async def run_once(self) -> float:
        while await self.notifications.send_due():
            pass
        return seconds_until(await self.notifications.next_due_ms(), self.clock.steady_ms())
