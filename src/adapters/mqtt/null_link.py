"""No devices here: the link of an instance that serves people while another one on the same database holds the devices.

It lets nobody in and reaches nobody, and says so in the words of the port, so that nothing above it has to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from domain.devices.codec import OutboundMessage
from domain.devices.link import InboundBatch, SendResult
from domain.kernel.errors import Unavailable


class NullDeviceLink:
    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """There is nothing to listen on."""

    async def stop(self) -> None:
        self._stopped.set()

    async def receive(self, limit: int) -> InboundBatch:
        await self._stopped.wait()
        raise Unavailable("This instance holds no devices.")

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        """Whoever holds the devices hears of it by the log."""

    async def remove_device(self, device_id: str) -> None:
        """As `admit`."""

    async def send(self, device_id: str, message: OutboundMessage) -> SendResult:
        return SendResult.NOT_SENT

    def is_connected(self, device_id: str) -> bool:
        return False

    def last_subscribed_ms(self, device_id: str) -> int:
        return 0

    def stats(self) -> Mapping[str, int]:
        return {}
