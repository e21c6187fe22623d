"""The link of an instance that serves HTTP while another instance on the same database holds the devices.

It accepts no device and reaches none, and reports that through the port, so that no other part needs to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from domain.devices.link import InboundBatch, PublishResult
from domain.devices.messages import OutboundMessage
from domain.kernel.errors import Unavailable


class NullDeviceLink:
    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        self._stopped.set()

    def hold_partitions(self, partitions: Collection[int]) -> None:
        """No device is connected."""

    def suspend(self) -> None:
        """No device is connected."""

    def resume(self) -> None:
        """As `suspend`."""

    async def receive(self, limit: int) -> InboundBatch:
        await self._stopped.wait()
        raise Unavailable("This instance holds no devices.")

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        """The instance that holds the devices reads the change from the event log."""

    async def remove_device(self, device_id: str) -> None:
        """As `upsert_credentials`."""

    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        return PublishResult.NOT_SENT

    def is_connected(self, device_id: str) -> bool:
        return False

    def last_subscribed_ms(self, device_id: str) -> int:
        return 0

    def disconnect(self, device_id: str) -> bool:
        return False

    def connection_problem(self) -> str | None:
        return None

    def warning(self) -> str | None:
        return None

    def stats(self) -> Mapping[str, int]:
        return {}
