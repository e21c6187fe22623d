"""Shows readings as events, for `GET /events?type=telemetry`: newest first, of one device or of all devices of an account.

Readings are not in the event log, so they are merged from the rows of each device. No device is read further than the requested
page needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.events.feed_model import ReadingAsEvent
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine
from domain.telemetry.ports import MAX_TIME_MS, HasReadings

MAX_DEVICES = 200
"""The most recently seen devices: a page has at most 200 readings, so it cannot contain more devices."""


class ReadingsAsEventsTx(HasDevices, HasReadings, Protocol): ...


class ReadingsAsEventsService:
    """Implements the port of the events part for telemetry."""

    def __init__(self, *, uow: UnitOfWork[ReadingsAsEventsTx], engine: TelemetryEngine) -> None:
        self._uow = uow
        self._engine = engine

    async def page(
        self, account_id: AccountId, *, device_id: DeviceId | None, limit: int, skip: int, before_ms: int
    ) -> Sequence[ReadingAsEvent]:
        """Readings at or before `before_ms` (Unix ms), newest first, without the first `skip`."""
        wanted = limit + skip
        async with self._uow.read() as tx:
            devices = (await self._list_devices(tx, account_id, device_id))[:MAX_DEVICES]
            found = [await self._newest_records(tx, device, before_ms, wanted) for device in devices]
        merged = heapq.merge(*found, key=lambda record: (-record.at_ms, record.device_id, record.metric))
        return [record for number, record in enumerate(merged) if skip <= number < wanted]

    async def count(self, account_id: AccountId, *, device_id: DeviceId | None, limit: int) -> int:
        """The number of stored readings, counted up to `limit`."""
        counted = 0
        async with self._uow.read() as tx:
            for device in await self._list_devices(tx, account_id, device_id):
                rows = await tx.readings.list_between(device.device_no, 0, MAX_TIME_MS, limit - counted)
                counted += len(self._engine.unpack_readings(rows))
                if counted >= limit:
                    return limit
        return counted

    async def _list_devices(self, tx: ReadingsAsEventsTx, account_id: AccountId, device_id: DeviceId | None) -> Sequence[Device]:
        if device_id is not None:
            device = await tx.devices.get(account_id, device_id)
            return [] if device is None else [device]
        seen = [device for device in await tx.devices.list(account_id) if device.last_seen_ms is not None]
        return sorted(seen, key=lambda device: -(device.last_seen_ms or 0))

    async def _newest_records(self, tx: ReadingsAsEventsTx, device: Device, before_ms: int, wanted: int) -> list[ReadingAsEvent]:
        rows = await tx.readings.list_between(device.device_no, 0, before_ms + 1, wanted)
        names = {number: (name, unit) for number, name, unit in await tx.readings.list_device_metrics(device.device_no)}
        records = []
        for at_ms, number, value, text, _ in self._engine.unpack_readings(rows):
            metric, unit = names.get(number, (f"#{number}", None))
            records.append(ReadingAsEvent(device.device_id, device.name, at_ms, metric, value, text, unit))
        return sorted(records, key=lambda record: (-record.at_ms, record.device_id, record.metric))
