"""The health of devices, and what of their messages was dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from domain.devices.model import UNKNOWN_HEALTH, DeviceHealth, DroppedMessages, NewConnectionsSummary
from support.memory_storage.tables import Database, Table

HEALTH: Table[int, tuple[int, DeviceHealth]] = Table("device_health")
"""Device number → (connections, the rest)."""
DROPS: Table[tuple[int, str], tuple[DroppedMessages, int | None]] = Table("device_drops")
"""(Device number, reason) → (what is not announced, when the last was)."""


class MemoryDeviceHealthRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_by_numbers(self, numbers: Collection[int]) -> Mapping[int, DeviceHealth]:
        found = {no: replace(h, reconnects=max(0, c - 1)) for no, (c, h) in self._database.rows(HEALTH).items() if no in numbers}
        drops = [drop for drop, _ in self._database.rows(DROPS).values() if drop.device_no in numbers]
        for drop in sorted(drops, key=lambda drop: (drop.at_ms, drop.reason)):
            found[drop.device_no] = drop.shown_in(found.get(drop.device_no, UNKNOWN_HEALTH))
        return found

    async def add_connections(self, connections: Mapping[int, NewConnectionsSummary]) -> None:
        rows = self._database.writable_rows(HEALTH)
        for device_no, record in connections.items():
            connects, health = rows.get(device_no, (0, UNKNOWN_HEALTH))
            rows[device_no] = (connects + record.count, replace(health, max_packet_size=record.max_packet_size))

    async def set_firmware(self, versions: Mapping[int, str]) -> None:
        rows = self._database.writable_rows(HEALTH)
        for device_no, version in versions.items():
            connects, health = rows.get(device_no, (0, UNKNOWN_HEALTH))
            rows[device_no] = (connects, replace(health, firmware=version))

    async def set_clock_offsets(self, offsets_ms: Mapping[int, int]) -> None:
        rows = self._database.writable_rows(HEALTH)
        for device_no, offset_ms in offsets_ms.items():
            connects, health = rows.get(device_no, (0, UNKNOWN_HEALTH))
            rows[device_no] = (connects, replace(health, clock_offset_ms=offset_ms))

    async def add_drops(self, drops: Sequence[DroppedMessages]) -> None:
        rows = self._database.writable_rows(DROPS)
        for drop in drops:
            before, announced_ms = rows.get((drop.device_no, drop.reason), (None, None))
            count = drop.count + (0 if before is None else before.count)
            rows[drop.device_no, drop.reason] = (replace(drop, count=count), announced_ms)

    async def take_unannounced_drops(
        self, numbers: Collection[int], announced_before_ms: int, now_ms: int
    ) -> Sequence[DroppedMessages]:
        taken = [
            drop
            for _, (drop, announced_ms) in sorted(self._database.rows(DROPS).items())
            if drop.device_no in numbers and drop.count and (announced_ms is None or announced_ms <= announced_before_ms)
        ]
        rows = self._database.writable_rows(DROPS)
        for drop in taken:
            rows[drop.device_no, drop.reason] = (replace(drop, count=0), now_ms)
        return taken
