"""Writes what was dropped of the messages of devices: `health.lastDrop` and the event `device_message_dropped`."""

from __future__ import annotations

import asyncio

from app.workers.base_worker import MAX_SLEEP_S, DueTaskWorker
from app.workers.wake_event import WakeEvent
from domain.devices.dropped_messages import DroppedMessageService

PAUSE_S = 1.0
"""Between two writes: a fleet that sends nonsense costs one transaction a second."""


class DroppedMessageWorker(DueTaskWorker):
    name = "dropped_messages"

    def __init__(self, *, dropped_messages: DroppedMessageService, wake_event: WakeEvent) -> None:
        super().__init__(wake_event)
        self._dropped_messages = dropped_messages

    async def run_once(self) -> float:
        await self._dropped_messages.write_pending()
        await asyncio.sleep(PAUSE_S)
        return MAX_SLEEP_S
