"""Who has come and gone in one batch: decided in memory, in the order of the reports, and written together.

When a whole fleet comes at once, each of its devices is news; a statement for each would keep everybody else's messages waiting
for seconds. So a batch is one look at its devices before, and one statement for all that turned.
"""

from __future__ import annotations

from typing import Protocol

from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.domain_events import DomainEvent
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import Transaction


class PresenceTx(Transaction, HasDevices, Protocol): ...


class PresenceBatch:
    """The devices that are given to it are as this very transaction has read them."""

    def __init__(self) -> None:
        self._stored: dict[DeviceId, bool] = {}
        self._current: dict[DeviceId, bool] = {}
        self._last_seen_ms: dict[int, int] = {}
        self._last_event: dict[DeviceId, DomainEvent] = {}
        self._change_events: list[tuple[DeviceId, DomainEvent]] = []

    def touch(self, device: Device, at_ms: int) -> None:
        self._last_seen_ms[device.device_no] = max(at_ms, self._last_seen_ms.get(device.device_no, at_ms))

    def set_online(self, device: Device, online: bool, fact: DomainEvent) -> None:
        """The device is there, or is not, which `fact` tells if it is a change."""
        before = self._stored.setdefault(device.device_id, device.is_online)
        if self._current.get(device.device_id, before) is not online:
            self._change_events.append((device.device_id, fact))
        self._current[device.device_id] = online
        self._last_event[device.device_id] = fact

    async def write(self, tx: PresenceTx) -> None:
        """All of it. What another writer has changed since the look has been told by that one: what comes to the same is not told
        again, and what undoes it is told though it was no change when we looked."""
        if self._last_seen_ms:
            await tx.devices.update_last_seen(self._last_seen_ms)
        changed: set[DeviceId] = set()
        for online in (True, False):
            among = [device_id for device_id, now in self._current.items() if now is online]
            if among:
                changed.update(await tx.devices.set_online_many(among, online))
        turned = {device_id for device_id, online in self._current.items() if online is not self._stored[device_id]}
        untold = {device_id: self._last_event[device_id] for device_id in turned - changed}
        for device_id, fact in self._change_events:
            if untold.get(device_id) is not fact:
                await tx.emit(fact)
        for device_id in sorted(changed - turned):
            await tx.emit(self._last_event[device_id])
