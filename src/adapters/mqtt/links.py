"""Links of instances whose devices are elsewhere: of a standby until it becomes the leader, and of one that serves HTTP while
another instance on the same database holds the devices. Both report that through the port, so that no other part needs to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from domain.devices.link import DeviceBrokerLink, InboundBatch, PublishResult
from domain.devices.messages import OutboundMessage
from domain.kernel.errors import Unavailable


class LeaderOnlyDeviceLink:
    """No device is connected until this instance becomes the leader; then it is the real link.

    Until then the real link must not be used: the broker of the leader serves the devices, and what this instance would write
    (the password file of an external broker, a retained plan) would overwrite the leader's."""

    def __init__(self, link: DeviceBrokerLink) -> None:
        self._link = link
        self.is_active = False
        self.hold_partitions, self.receive, self.has_waiting = link.hold_partitions, link.receive, link.has_waiting
        self.suspend, self.resume = link.suspend, link.resume

    def activate(self) -> None:
        """From now on credentials are passed on to the link; `start` opens it."""
        self.is_active = True

    async def start(self) -> None:
        if self.is_active:
            await self._link.start()

    async def stop(self) -> None:
        if self.is_active:
            await self._link.stop()

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        if self.is_active:
            await self._link.upsert_credentials(device_id, device_no, password, profile)

    async def remove_device(self, device_id: str) -> None:
        if self.is_active:
            await self._link.remove_device(device_id)

    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        return await self._link.send(device_id, message) if self.is_active else PublishResult.NOT_SENT

    def is_connected(self, device_id: str) -> bool:
        return self.is_active and self._link.is_connected(device_id)

    def last_subscribed_ms(self, device_id: str) -> int:
        return self._link.last_subscribed_ms(device_id) if self.is_active else 0

    def disconnect(self, device_id: str) -> bool:
        return self.is_active and self._link.disconnect(device_id)

    def connection_problem(self) -> str | None:
        return self._link.connection_problem() if self.is_active else None

    def warning(self) -> str | None:
        return self._link.warning() if self.is_active else None

    def stats(self) -> Mapping[str, int]:
        return self._link.stats() if self.is_active else {}


class NullDeviceLink:
    """Accepts no device and reaches none."""

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

    def has_waiting(self) -> bool:
        return False

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
