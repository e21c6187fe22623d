"""Which devices have subscribed to their commands, and whether the notification of that has been processed.

A device receives commands from the moment it subscribes, but the notification arrives later, in order with its other messages.
Only then are the commands resent that were lost with the earlier connection. Nothing may be sent in between: a new command
would overtake them, and the relay would end in the wrong state.
"""

from __future__ import annotations

from itertools import islice

from domain.devices.link import DeviceLink
from domain.devices.model import Device


class CommandSubscriptions:
    def __init__(self, link: DeviceLink) -> None:
        self._link = link
        self._ready: dict[int, int] = {}
        """Device number → when (Unix ms) it subscribed to commands; its backlog is still to be sent."""
        self._deferred: dict[int, int] = {}
        """The same for devices with a later subscription whose notification is still outstanding."""
        self._reported_ms: dict[int, int] = {}
        """Device number → time of its last notified subscription."""
        self._awaited_ms: dict[int, int] = {}
        """Device number → time of the subscription whose notification a command waits for."""
        self._previously_awaited_ms: dict[int, int] = {}

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool) -> bool:
        """Record a notified subscription. True when a command waits for it."""
        self._reported_ms[device_no] = max(at_ms, self._reported_ms.get(device_no, 0))
        if to_commands:
            self._deferred.pop(device_no, None)
            self._ready[device_no] = at_ms
        elif device_no in self._deferred:
            self._ready.setdefault(device_no, self._deferred.pop(device_no))
        return self._awaited_ms.pop(device_no, None) is not None

    def pop_ready(self, limit: int) -> dict[int, int]:
        taken = dict(islice(self._ready.items(), limit))
        for device_no in taken:
            del self._ready[device_no]
        return taken

    def requeue(self, taken: dict[int, int]) -> None:
        self._ready = taken | self._ready

    def __len__(self) -> int:
        return len(self._ready)

    def can_send(self, device: Device, since_ms: int | None) -> bool:
        """False while a subscription notification is outstanding; the device is served when it arrives. `since_ms`: the
        device's value from `pop_ready`, if any."""
        if device.device_no in self._ready:
            return False
        last_ms = self._link.last_subscribed_ms(device.device_id)
        if last_ms <= self._reported_ms.get(device.device_no, 0):
            return True
        self._awaited_ms[device.device_no] = last_ms
        if since_ms is not None:
            self._deferred[device.device_no] = since_ms
        return False

    def expire_pending(self) -> None:
        """Call periodically: a notification that has not arrived since the last call is treated as lost."""
        for device_no, at_ms in self._previously_awaited_ms.items():
            if self._awaited_ms.get(device_no) == at_ms:
                self.on_subscribed(device_no, at_ms, to_commands=False)
        self._previously_awaited_ms = dict(self._awaited_ms)
