"""Queries of telemetry: latest values, history, and exports in bounded pages. For time buckets see `downsampling.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from domain.devices.model import Device
from domain.grants.authorizer import Authorizer, get_readable_device
from domain.kernel.caller import Caller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import LatestReading
from domain.rules.ports import TelemetryEngine, UnpackedReading
from domain.telemetry.model import Reading
from domain.telemetry.ports import MAX_TIME_MS, MessageKey, TelemetryQueryTx
from domain.telemetry.queries.database_and_archive_reading_history import DatabaseAndArchiveReadingHistory
from domain.telemetry.queries.message_paging import HistoryTimeRange, read_page
from domain.telemetry.reading_packing import value_columns

PAGE_MESSAGES = 1_000
EXPORT_PAGE_MESSAGES = 250
"""Messages per page of an export. Other tasks run between pages: they wait some 5 ms, not 20."""
MAX_SCANNED_MESSAGES = 200_000
"""A query for a rare metric reads at most this many messages; narrow it with `since` and `until`."""


@dataclass(frozen=True, slots=True)
class DeviceLatestReadings:
    device: Device
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class DeviceMetricNames:
    """The metrics of a device: number → (name, unit)."""

    by_number: dict[int, tuple[str, str | None]]

    @classmethod
    async def load(cls, tx: TelemetryQueryTx, device: Device) -> DeviceMetricNames:
        return cls({number: (name, unit) for number, name, unit in await tx.readings.list_device_metrics(device.device_no)})

    def name_and_unit(self, number: int) -> tuple[str, str | None]:
        return self.by_number.get(number, (f"#{number}", None))

    def find_number(self, metric: str) -> int | None:
        return next((number for number, (name, _) in self.by_number.items() if name == metric), None)

    def to_reading(self, unpacked: UnpackedReading) -> Reading:
        at_ms, number, value, text, reported_ms = unpacked
        name, unit = self.name_and_unit(number)
        return Reading(name, value, text, unit, at_ms, reported_ms)


@service
class TelemetryQueryService:
    """`is_stored_elsewhere`: whether another instance ingests the telemetry of this device number now. If so, its latest
    values come from the database, by an engine of `create_engine`."""

    uow: UnitOfWork[TelemetryQueryTx]
    clock: Clock
    engine: TelemetryEngine
    create_engine: Callable[[], TelemetryEngine]
    authorizer: Authorizer
    stored: DatabaseAndArchiveReadingHistory = field(default_factory=DatabaseAndArchiveReadingHistory)
    is_stored_elsewhere: Callable[[int], bool] = lambda device_no: False

    async def readable_device(self, caller: Caller, device_id: DeviceId) -> Device:
        """The device, if the caller may read its telemetry. Raises NotFound, PermissionDenied."""
        async with self.uow.read() as tx:
            return await self._get_readable_device(tx, caller, device_id)

    async def latest(self, caller: Caller, device_id: DeviceId) -> DeviceLatestReadings:
        """The latest value of each metric, ordered by name. Raises NotFound, PermissionDenied."""
        async with self.uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            if self.is_stored_elsewhere(device.device_no):
                latest = await self._stored_latest(tx, device)
            else:
                latest = self.engine.latest(device.device_no)
        values = sorted(latest, key=lambda reading: reading.metric)
        return DeviceLatestReadings(
            device, tuple(Reading(each.metric, *value_columns(each.value), each.unit, each.ts_ms) for each in values)
        )

    async def _stored_latest(self, tx: TelemetryQueryTx, device: Device) -> Sequence[LatestReading]:
        """What the device's own instance would have after a restart: its checkpoint, and the messages after that."""
        engine, number, now_ms = self.create_engine(), device.device_no, self.clock.now_ms()
        metrics = await tx.readings.list_device_metrics(number)
        engine.add_metric_names([(metric_no, name) for metric_no, name, _ in metrics])
        after_ms = -1
        if (checkpoint := await tx.readings.find_checkpoint(number)) is not None:
            after_ms, packed = checkpoint
            with suppress(ValueError):  # unreadable: a restart skips it too
                engine.restore(number, packed, now_ms)
        span, after = HistoryTimeRange(after_ms + 1, MAX_TIME_MS), None
        while True:
            rows, after = await read_page(tx, number, span, PAGE_MESSAGES, after, newest_first=False)
            for at_ms, packed in rows:
                with suppress(ValueError):
                    engine.replay(number, at_ms, packed, now_ms)
            if after is None:
                break
        units = {name: unit for _, name, unit in metrics}
        return [replace(each, unit=units.get(each.metric)) for each in engine.latest(number)]

    async def history(
        self, caller: Caller, device_id: DeviceId, span: HistoryTimeRange, *, metric: str | None, limit: int
    ) -> list[Reading]:
        """At most `limit` readings, newest first. Raises NotFound, PermissionDenied."""
        found: list[Reading] = []
        async with self.uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            names = await DeviceMetricNames.load(tx, device)
            number = None if metric is None else names.find_number(metric)
            if metric is not None and number is None:
                return []
            scanned = 0
            async for rows in self.stored.iterate_pages(tx, device, span, PAGE_MESSAGES):
                found += [names.to_reading(unpacked) for unpacked in self.engine.unpack_readings(rows, number)]
                scanned += len(rows)
                if len(found) >= limit or scanned >= MAX_SCANNED_MESSAGES:
                    break
        return found[:limit]

    async def export(
        self, caller: Caller, device_id: DeviceId, span: HistoryTimeRange, *, metric: str | None
    ) -> AsyncIterator[list[Reading]]:
        """Readings, oldest first, a page of messages at a time. Each page is a short read of its own, so an export blocks nobody.

        Raises NotFound and PermissionDenied with the first page."""
        async with self.uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            names = await DeviceMetricNames.load(tx, device)
        number = None if metric is None else names.find_number(metric)
        if metric is not None and number is None:
            return
        after: MessageKey | None = None
        while True:
            async with self.uow.read() as tx:
                rows, after = await self.stored.read_page(tx, device, span, EXPORT_PAGE_MESSAGES, after, newest_first=False)
            yield [names.to_reading(unpacked) for unpacked in self.engine.unpack_readings(rows, number)]
            if after is None:
                return

    async def _get_readable_device(self, tx: TelemetryQueryTx, caller: Caller, device_id: DeviceId) -> Device:
        return await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
