"""The health of a device: what the service has measured or learned about it beside its readings.

Every field is None (or 0) until it is known. Devices are named by their number, because readings and faults are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LastDroppedMessage:
    """The last message, or part of one, that the service did not keep."""

    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    clock_offset_ms: int | None = None
    """How far the device's clock is ahead of the service's; negative when it is behind."""
    last_drop: LastDroppedMessage | None = None
    reconnects: int = 0
    """Connections after the first one."""
    firmware: str | None = None
    max_packet_size: int | None = None
    """Bytes; what the last connection announced (MQTT 5). None: no limit, or not known."""


UNKNOWN_HEALTH = DeviceHealth()


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Messages of one device that were dropped for one reason. `at_ms` is the time of the last one."""

    device_no: int
    reason: str
    count: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class NewConnectionsSummary:
    """New connections of a device, and what the last of them announced."""

    count: int
    max_packet_size: int | None


class DeviceHealthRepository(Protocol):
    async def list_by_numbers(self, numbers: Collection[int]) -> Mapping[int, DeviceHealth]:
        """Of those devices about which anything is known."""

    async def add_connections(self, connections: Mapping[int, NewConnectionsSummary]) -> None: ...

    async def set_firmware(self, versions: Mapping[int, str]) -> None: ...

    async def set_clock_offsets(self, offsets_ms: Mapping[int, int]) -> None: ...

    async def add_drops(self, drops: Sequence[DroppedMessages]) -> None:
        """Count the drops, and remember when the last one of each reason was."""

    async def take_unannounced_drops(
        self, numbers: Collection[int], announced_before_ms: int, now_ms: int
    ) -> Sequence[DroppedMessages]:
        """Of these devices, the counts of each reason that were not announced yet, and whose last announcement, if any, was at or
        before `announced_before_ms`. They count as announced at `now_ms` then."""


class HasDeviceHealth(Protocol):
    @property
    def device_health(self) -> DeviceHealthRepository: ...
