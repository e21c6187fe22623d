"""Who has come and gone in one batch: decided in memory, in the order of the reports, and written together.

When a whole fleet comes at once, each of its devices is news; a statement for each would keep everybody else's messages waiting
for seconds. So a batch is one look at its devices before, and one statement for all that turned.
"""

from __future__ import annotations

from domain.devices.model import Device
from domain.devices.ports import DevicesTx
from domain.kernel.facts import Fact
from domain.kernel.ids import DeviceId


class RollCall:
    """The devices that are given to it are as this very transaction has read them."""

    def __init__(self) -> None:
        self._before: dict[DeviceId, bool] = {}
        self._now: dict[DeviceId, bool] = {}
        self._seen: dict[int, int] = {}
        self._last: dict[DeviceId, Fact] = {}
        self._turns: list[tuple[DeviceId, Fact]] = []

    def saw(self, device: Device, at_ms: int) -> None:
        self._seen[device.device_no] = max(at_ms, self._seen.get(device.device_no, at_ms))

    def put(self, device: Device, online: bool, fact: Fact) -> None:
        """The device is there, or is not, which `fact` tells if it is a change."""
        before = self._before.setdefault(device.device_id, device.is_online)
        if self._now.get(device.device_id, before) is not online:
            self._turns.append((device.device_id, fact))
        self._now[device.device_id] = online
        self._last[device.device_id] = fact

    async def write(self, tx: DevicesTx) -> None:
        """All of it. What another writer has changed since the look has been told by that one: what comes to the same is not told
        again, and what undoes it is told though it was no change when we looked."""
        if self._seen:
            await tx.devices.touch(self._seen)
        changed: set[DeviceId] = set()
        for online in (True, False):
            among = [device_id for device_id, now in self._now.items() if now is online]
            if among:
                changed.update(await tx.devices.set_online_all(among, online))
        turned = {device_id for device_id, online in self._now.items() if online is not self._before[device_id]}
        untold = {device_id: self._last[device_id] for device_id in turned - changed}
        for device_id, fact in self._turns:
            if untold.get(device_id) is not fact:
                await tx.record(fact)
        for device_id in sorted(changed - turned):
            await tx.record(self._last[device_id])
