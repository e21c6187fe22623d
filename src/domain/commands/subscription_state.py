"""Which devices hear their commands since when, and whether we have been told all of it.

A device that comes back hears its commands from the moment it subscribes; that it has subscribed we are told a little later, with
everything else that comes up. What was lost with its earlier connection goes again then, so in between nothing may be sent: it
would overtake what was given before it, and the relay would end up in the wrong state.
"""

from __future__ import annotations

from itertools import islice

from domain.devices.link import DeviceLink
from domain.devices.model import Device


class CommandSubscriptions:
    def __init__(self, link: DeviceLink) -> None:
        self._link = link
        self._ready: dict[int, int] = {}
        """Device number → since when (Unix ms) it hears its commands; still to be served."""
        self._deferred: dict[int, int] = {}
        """The same, of devices that have subscribed to something since."""
        self._reported_ms: dict[int, int] = {}
        """Device number → its last subscription we were told of."""
        self._awaited_ms: dict[int, int] = {}
        """Device number → its subscription we have waited for when something was to be sent."""
        self._previously_awaited_ms: dict[int, int] = {}

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool) -> bool:
        """Whether somebody waits for this."""
        self._reported_ms[device_no] = max(at_ms, self._reported_ms.get(device_no, 0))
        if to_commands:
            self._deferred.pop(device_no, None)
            self._ready[device_no] = at_ms
        elif device_no in self._deferred:
            self._ready.setdefault(device_no, self._deferred.pop(device_no))
        return self._awaited_ms.pop(device_no, None) is not None

    def pop_ready(self, most: int) -> dict[int, int]:
        taken = dict(islice(self._ready.items(), most))
        for device_no in taken:
            del self._ready[device_no]
        return taken

    def requeue(self, taken: dict[int, int]) -> None:
        self._ready = taken | self._ready

    def __len__(self) -> int:
        return len(self._ready)

    def can_send(self, device: Device, since_ms: int | None) -> bool:
        """False while something about it is still to come; then it is served once that has come. `since_ms` was taken for it."""
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
        """Now and then: what has not come since the last time will not come any more (it was lost with a database, say)."""
        for device_no, at_ms in self._previously_awaited_ms.items():
            if self._awaited_ms.get(device_no) == at_ms:
                self.on_subscribed(device_no, at_ms, to_commands=False)
        self._previously_awaited_ms = dict(self._awaited_ms)
