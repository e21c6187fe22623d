"""What is to be done after the transaction of a batch has been committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.devices.messages import OutboundMessage
from domain.kernel.ids import DeviceId


@dataclass(slots=True)
class AfterCommitDeviceWorkList:
    messages: list[tuple[DeviceId, OutboundMessage]] = field(default_factory=list)
    ready_devices: list[tuple[int, int, int]] = field(default_factory=list)
    """(device number, since when in Unix ms, `InboundDeviceSubscribed.held_until_ms`) of devices that receive commands now."""
    subscribed_devices: list[tuple[int, int]] = field(default_factory=list)
    """(device number, when in Unix ms) of devices that have subscribed to other topics."""

    def extend(self, other: AfterCommitDeviceWorkList) -> None:
        self.messages += other.messages
        self.ready_devices += other.ready_devices
        self.subscribed_devices += other.subscribed_devices
