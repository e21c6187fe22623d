"""Which instance of a cluster holds the connection of a device. A device that moves to another instance goes offline nowhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

NO_FRONT = ""
"""The instance of a device whose instance has died; its grace period runs."""


class DeviceConnectionHolderRepository(Protocol):
    async def attach(self, device_nos: Collection[int], front: str) -> Collection[int]:
        """These devices have connected to the instance `front`. Returns those that had another instance until now."""

    async def detach(self, device_nos: Collection[int], front: str) -> None:
        """These devices are offline, unless they have connected to another instance than `front` since."""

    async def fronts(self, device_nos: Collection[int]) -> Mapping[int, str]:
        """Device number → instance, of those that have one. The rows stay as they are until a writing transaction ends."""

    async def abandon(self, live: Collection[str]) -> Sequence[int]:
        """Set NO_FRONT for the devices of all instances that are not among `live`. Returns the numbers of all that have it."""


class HasDeviceConnectionHolders(Protocol):
    @property
    def device_sessions(self) -> DeviceConnectionHolderRepository: ...
