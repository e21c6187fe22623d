"""What a batch of messages tells about the health of devices; written together."""

from __future__ import annotations

from domain.devices.health import HasDeviceHealth, NewConnectionsSummary

MAX_FIRMWARE_LENGTH = 64


class DeviceHealthBatch:
    def __init__(self) -> None:
        self._connections: dict[int, NewConnectionsSummary] = {}
        self._firmware: dict[int, str] = {}

    def add_connection(self, device_no: int, max_packet_size: int | None) -> None:
        before = self._connections.get(device_no)
        self._connections[device_no] = NewConnectionsSummary(1 if before is None else before.count + 1, max_packet_size)

    def set_firmware(self, device_no: int, version: str) -> None:
        self._firmware[device_no] = "".join(filter(str.isprintable, version))[:MAX_FIRMWARE_LENGTH]

    async def write(self, tx: HasDeviceHealth) -> None:
        if self._connections:
            await tx.device_health.add_connections(self._connections)
        if self._firmware:
            await tx.device_health.set_firmware(self._firmware)
