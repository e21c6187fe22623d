"""The link of an instance that waits to hold the devices: absent until it is told that they are ours, then the link it was given.

Until then nothing of it may be touched: another instance's broker lets devices in, and what we would write (an external broker's
password file, a retained plan) would be written over.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.devices.link import DeviceLink, UplinkBatch


class StandbyLink:
    def __init__(self, link: DeviceLink) -> None:
        self._link = link
        self.here = False

    def take_over(self) -> None:
        """From now on whoever may connect is told to the link; `start` opens it."""
        self.here = True

    async def start(self) -> None:
        if self.here:
            await self._link.start()

    async def stop(self) -> None:
        if self.here:
            await self._link.stop()

    async def take(self, limit: int) -> UplinkBatch:
        return await self._link.take(limit)

    async def admit(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        if self.here:
            await self._link.admit(device_id, device_no, password, profile)

    async def expel(self, device_id: str) -> None:
        if self.here:
            await self._link.expel(device_id)

    async def send(
        self,
        device_id: str,
        topic: str,
        payload: bytes,
        *,
        retain: bool = False,
        expiry_s: int | None = None,
        qos: int = 1,
    ) -> bool:
        return self.here and await self._link.send(device_id, topic, payload, retain=retain, expiry_s=expiry_s, qos=qos)

    def connected(self, device_id: str) -> bool:
        return self.here and self._link.connected(device_id)

    def subscribed_ms(self, device_id: str) -> int:
        return self._link.subscribed_ms(device_id) if self.here else 0

    def stats(self) -> Mapping[str, int]:
        return self._link.stats() if self.here else {}
