"""Messages of devices that this instance does not know yet.

In a cluster the broker lets a new device in as soon as one instance has registered it; the others read that from the event log up
to a second later. Until then they keep what the device sends, unacknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from adapters.mqtt.mosquitto_inbound_queue import AckHandle

WAIT_S = 3.0
MAX_MESSAGES = 10_000

UnknownDeviceMessage: TypeAlias = tuple[Any, AckHandle | None]


class UnknownDeviceMessageBuffer:
    def __init__(self, on_expired: Callable[[UnknownDeviceMessage], None]) -> None:
        """`on_expired` gets each message whose device has not become known in time."""
        self._on_expired = on_expired
        self._waiting: dict[str, list[UnknownDeviceMessage]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._count = 0

    def keep(self, device_id: str, message: UnknownDeviceMessage) -> bool:
        """False if there are too many already."""
        if self._count >= MAX_MESSAGES:
            return False
        self._waiting.setdefault(device_id, []).append(message)
        self._count += 1
        if device_id not in self._timers:
            self._timers[device_id] = asyncio.get_running_loop().call_later(WAIT_S, self._expire, device_id)
        return True

    def take(self, device_id: str) -> Sequence[UnknownDeviceMessage]:
        """What the device has sent, in its order."""
        if device_id not in self._timers:
            return ()
        self._timers.pop(device_id).cancel()
        taken = self._waiting.pop(device_id)
        self._count -= len(taken)
        return taken

    def close(self) -> None:
        for device_id in list(self._timers):
            self.take(device_id)

    def _expire(self, device_id: str) -> None:
        for message in self.take(device_id):
            self._on_expired(message)
