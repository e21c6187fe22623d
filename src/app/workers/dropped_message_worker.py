"""Writes what was dropped of the messages of devices: `health.lastDrop` and the event `device_message_dropped`."""

from __future__ import annotations

import asyncio

from app.workers.due_task_worker import MAX_SLEEP_S, DueTaskWorker
from domain.devices.health import DroppedMessageService
from domain.kernel.dataclasses import service

PAUSE_S = 1.0
"""Between two writes: a fleet that sends nonsense costs one transaction a second."""


@service
class DroppedMessageWorker(DueTaskWorker):
    name = "dropped_messages"

    dropped_messages: DroppedMessageService

    async def run_once(self) -> float:
        await self.dropped_messages.write_pending()
        await asyncio.sleep(PAUSE_S)
        return MAX_SLEEP_S
