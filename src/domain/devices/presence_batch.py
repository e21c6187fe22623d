"""Presence changes of one batch: decided in memory, in the order of the reports, and written together.

When a whole fleet connects at once, one statement per device would delay all other messages for seconds. So a batch writes all
changed devices in one statement per state.
"""

from __future__ import annotations

from typing import Protocol

from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.domain_event import DomainEvent
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import Transaction


class PresenceBatchTx(Transaction, HasDevices, Protocol): ...


class PresenceBatch:
    """The devices passed in must have been read in the same transaction."""

    def __init__(self) -> None:
        self._stored: dict[DeviceId, bool] = {}
        self._current: dict[DeviceId, bool] = {}
        self._last_seen_ms: dict[int, int] = {}
        self._last_event: dict[DeviceId, DomainEvent] = {}
        self._change_events: list[tuple[DeviceId, DomainEvent]] = []

    def touch(self, device: Device, at_ms: int) -> None:
        self._last_seen_ms[device.device_no] = max(at_ms, self._last_seen_ms.get(device.device_no, at_ms))

    def is_online(self, device: Device) -> bool:
        """After the reports so far."""
        return self._current.get(device.device_id, device.is_online)

    def set_online(self, device: Device, online: bool, event: DomainEvent) -> None:
        """Set the presence; `event` is emitted if this is a change."""
        before = self._stored.setdefault(device.device_id, device.is_online)
        if self._current.get(device.device_id, before) is not online:
            self._change_events.append((device.device_id, event))
        self._current[device.device_id] = online
        self._last_event[device.device_id] = event

    async def write(self, tx: PresenceBatchTx) -> None:
        """Write all changes and emit their events. A concurrent writer has already emitted the event of a change that both made,
        so it is not emitted again; a change that reverts the other writer's is emitted although it was none when we read."""
        if self._last_seen_ms:
            await tx.devices.update_last_seen(self._last_seen_ms)
        changed: set[DeviceId] = set()
        for online in (True, False):
            device_ids = [device_id for device_id, now in self._current.items() if now is online]
            if device_ids:
                changed.update(await tx.devices.set_online_many(device_ids, online))
        expected = {device_id for device_id, online in self._current.items() if online is not self._stored[device_id]}
        not_emitted = {device_id: self._last_event[device_id] for device_id in expected - changed}
        for device_id, event in self._change_events:
            if not_emitted.get(device_id) is not event:
                await tx.emit(event)
        for device_id in sorted(changed - expected):
            await tx.emit(self._last_event[device_id])
