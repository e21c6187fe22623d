"""Which devices have subscribed to their commands, and whether the notification of that has been processed.

A device receives commands from the moment it subscribes, but the notification arrives later, in order with its other messages.
Only then are the commands resent that were lost with the earlier connection. Nothing may be sent in between: a new command
would overtake them, and the relay would end in the wrong state.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from domain.commands.firmware_resend_and_confirmation_rules import can_resend
from domain.commands.model import Execution, ExecutionStatus
from domain.devices.link import OutboundDeviceMessagePort
from domain.devices.model import Device


class CommandLossWindow(NamedTuple):
    """A command sent from `from_ms` on and before `until_ms` (Unix ms) may be lost with an earlier connection."""

    from_ms: int
    until_ms: int

    @classmethod
    def before(cls, subscribed_ms: int, held_until_ms: int) -> CommandLossWindow:
        """`held_until_ms` as in `InboundDeviceSubscribed`."""
        return cls(held_until_ms + 1 if held_until_ms else 0, subscribed_ms)

    def merge(self, other: CommandLossWindow | None) -> CommandLossWindow:
        return self if other is None else CommandLossWindow(min(self.from_ms, other.from_ms), max(self.until_ms, other.until_ms))


def can_be_lost(device: Device, execution: Execution, window: CommandLossWindow | None) -> bool:
    """Whether a command that was sent, or may have been (QUEUED with `sent_ms`), is to be sent again: it may be lost, and running
    it twice does no harm."""
    sent_ms = execution.sent_ms or 0
    is_lost = execution.status is ExecutionStatus.QUEUED or (window is not None and window.from_ms <= sent_ms < window.until_ms)
    return is_lost and can_resend(device.profile, execution.cmd)


class CommandSubscriptionTracker:
    def __init__(self, link: OutboundDeviceMessagePort) -> None:
        self._link = link
        self._ready: dict[int, CommandLossWindow] = {}
        """Device number → which of its commands may be lost; its backlog is still to be sent."""
        self._deferred: dict[int, CommandLossWindow] = {}
        """The same for devices with a later subscription whose notification is still outstanding."""
        self._reported_ms: dict[int, int] = {}
        """Device number → time of its last notified subscription."""
        self._awaited_ms: dict[int, int] = {}
        """Device number → time of the subscription whose notification a command waits for."""
        self._previously_awaited_ms: dict[int, int] = {}

    def on_subscribed(self, device_no: int, at_ms: int, *, to_commands: bool, held_until_ms: int = 0) -> bool:
        """Record a notified subscription. True when a command waits for it."""
        self._reported_ms[device_no] = max(at_ms, self._reported_ms.get(device_no, 0))
        if to_commands:
            deferred = self._deferred.pop(device_no, None)
            window = CommandLossWindow.before(at_ms, held_until_ms)
            if held_until_ms:
                window = window.merge(deferred).merge(self._ready.get(device_no))
            self._ready[device_no] = window
        elif device_no in self._deferred:
            self._ready.setdefault(device_no, self._deferred.pop(device_no))
        return self._awaited_ms.pop(device_no, None) is not None

    def pop_ready(self, limit: int) -> dict[int, CommandLossWindow]:
        taken = dict(islice(self._ready.items(), limit))
        for device_no in taken:
            del self._ready[device_no]
        return taken

    def requeue(self, taken: dict[int, CommandLossWindow]) -> None:
        for device_no, window in taken.items():
            self._ready[device_no] = window.merge(self._ready.get(device_no))

    def __len__(self) -> int:
        return len(self._ready)

    def can_send(self, device: Device, window: CommandLossWindow | None) -> bool:
        """False while a subscription notification is outstanding; the device is served when it arrives. `window`: the
        device's value from `pop_ready`, if any."""
        if device.device_no in self._ready:
            return False
        last_ms = self._link.last_subscribed_ms(device.device_id)
        if last_ms <= self._reported_ms.get(device.device_no, 0):
            return True
        self._awaited_ms[device.device_no] = last_ms
        if window is not None:
            self._deferred[device.device_no] = window
        return False

    def expire_pending(self) -> None:
        """Call periodically: a notification that has not arrived since the last call is treated as lost."""
        for device_no, at_ms in self._previously_awaited_ms.items():
            if self._awaited_ms.get(device_no) == at_ms:
                self.on_subscribed(device_no, at_ms, to_commands=False)
        self._previously_awaited_ms = dict(self._awaited_ms)
