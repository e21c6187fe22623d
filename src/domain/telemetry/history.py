"""Queries of telemetry: latest values, history, and exports in bounded pages. For time buckets see `downsampling.py`.

The messages of a device are read page by page, in the order of their keys: (time, digest). A page continues after the last key of
the previous page. So no message is skipped or returned twice, even if a device with a stopped clock has sent many messages with
the same time.

Before the time that the database keeps, they come from the reading store. A worker adds messages to the store and then deletes
them in the database. So whoever first reads the database and then the store misses none; one that is in both has the same key. A
store that does not answer fails the query: a shorter history would be false.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from domain.devices.model import Device
from domain.events.feed_model import ReadingAsEvent
from domain.grants.authorizer import Authorizer, get_readable_device
from domain.kernel.caller import Caller
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.cursors import Position
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import LatestReading
from domain.rules.ports import TelemetryEngine, UnpackedReading
from domain.telemetry.model import HistoryTimeRange, Reading, name_of_unnamed, number_of_unnamed, oldest_kept_ms
from domain.telemetry.packing import pack_readings, value_columns
from domain.telemetry.ports import MAX_TIME_MS, ArchivedMessageReadings, MessageKey, ReadingArchiveStore, TelemetryTx

PAGE_MESSAGES = 1_000
EXPORT_PAGE_MESSAGES = 250
"""Messages per page of an export. Other tasks run between pages: they wait some 5 ms, not 20."""
MAX_SCANNED_MESSAGES = 200_000
"""A query for a rare metric reads at most this many messages for a page, which then is short and names the next one."""
MAX_DEVICES = 200
"""The most recently seen devices: a page has at most 200 readings, so it cannot contain more devices."""

PackedRows = list[tuple[int, bytes]]
ReadingPosition = tuple[int, int, int]
"""(Unix ms, digest, number): of the message with this key, so many readings have been read. All of one message share its time."""
READING_POSITION = (int, int, int)
_MAX_DIGEST = 2**31 - 1
_WHOLE_MESSAGE = 2**31
KeyedRow = tuple[int, int, bytes]
"""(Unix ms, digest, packed)"""


def moved_before_ms(now_ms: int, days: int) -> int:
    """The database has every reading from then on, also if the clock has just been set back by less than an hour."""
    return oldest_kept_ms(now_ms, days) + HOUR_MS


@service
class ReadingHistory:
    """`store`: None if the database has all readings. `moved_before_ms`: older readings may be in the store."""

    store: ReadingArchiveStore | None = None
    moved_before_ms: Callable[[], int] = lambda: -MAX_TIME_MS

    async def read_page(
        self,
        tx: TelemetryTx,
        device: Device,
        span: HistoryTimeRange,
        size: int,
        after: MessageKey | None,
        *,
        newest_first: bool = True,
    ) -> tuple[PackedRows, MessageKey | None]:
        """As `read_keyed_page`, the rows without their digests."""
        rows, after = await self.read_keyed_page(tx, device, span, size, after, newest_first=newest_first)
        return _without_digests(rows), after

    async def read_keyed_page(
        self,
        tx: TelemetryTx,
        device: Device,
        span: HistoryTimeRange,
        size: int,
        after: MessageKey | None,
        *,
        newest_first: bool = True,
    ) -> tuple[Sequence[KeyedRow], MessageKey | None]:
        """The rows, and the key after which the next page starts; None after the last page. Raises Unavailable."""
        found = await tx.readings.list_page(
            device.device_no, span.since_ms, span.until_ms, size, after, newest_first=newest_first
        )
        end_ms = self.moved_before_ms()
        is_past_end = not newest_first and after is not None and after[0] >= end_ms
        if self.store is None or span.since_ms >= end_ms or is_past_end:
            return _page(found, size)
        end_ms = min(span.until_ms, end_ms)
        newer = [row for row in found if row[0] >= end_ms] if newest_first else []
        if newer:  # a page of its own: whoever needs no more does not depend on the store
            return _page(newer, len(newer))
        older = await self.store.list_page(
            (device.device_no, device.device_id), span.since_ms, end_ms, size, after, newest_first=newest_first
        )
        return _page(await _merge(tx, device, found, older, newest_first=newest_first), size)

    async def iterate_pages(
        self, tx: TelemetryTx, device: Device, span: HistoryTimeRange, size: int
    ) -> AsyncIterator[PackedRows]:
        """Yield all pages, newest first, in the snapshot of the transaction. Raises Unavailable."""
        after: MessageKey | None = None
        while True:
            rows, after = await self.read_page(tx, device, span, size, after)
            if rows:
                yield rows
            if after is None:
                return


async def read_page(
    tx: TelemetryTx, device_no: int, span: HistoryTimeRange, size: int, after: MessageKey | None, *, newest_first: bool = True
) -> tuple[PackedRows, MessageKey | None]:
    """The rows, and the key after which the next page starts; None after the last page."""
    found = await tx.readings.list_page(device_no, span.since_ms, span.until_ms, size, after, newest_first=newest_first)
    rows, after = _page(found, size)
    return _without_digests(rows), after


def _page(found: Sequence[KeyedRow], size: int) -> tuple[Sequence[KeyedRow], MessageKey | None]:
    return found[:size], None if len(found) < size else found[size - 1][:2]


def _without_digests(rows: Sequence[KeyedRow]) -> PackedRows:
    return [(at_ms, packed) for at_ms, _, packed in rows]


async def _merge(
    tx: TelemetryTx, device: Device, found: Sequence[KeyedRow], older: Sequence[ArchivedMessageReadings], *, newest_first: bool
) -> list[KeyedRow]:
    numbers = {name: number for number, name, _ in await tx.readings.list_device_metrics(device.device_no)} if older else {}
    rows = {(message.at_ms, message.digest): _to_packed(message, numbers) for message in older}
    rows |= {(at_ms, digest): packed for at_ms, digest, packed in found}
    return [(*key, rows[key]) for key in sorted(rows, reverse=newest_first)]


def _to_packed(message: ArchivedMessageReadings, numbers: Mapping[str, int]) -> bytes:
    """Without metrics that the database does not know: it was restored from a backup of an earlier time."""
    readings = ((numbers.get(name) or number_of_unnamed(name), value) for name, value in message.readings)
    return pack_readings(((number, value) for number, value in readings if number), message.ahead_ms)


@dataclass(frozen=True, slots=True)
class DeviceMetricNames:
    """The metrics of a device: number → (name, unit)."""

    by_number: dict[int, tuple[str, str | None]]

    @classmethod
    async def load(cls, tx: TelemetryTx, device: Device) -> DeviceMetricNames:
        return cls({number: (name, unit) for number, name, unit in await tx.readings.list_device_metrics(device.device_no)})

    def name_and_unit(self, number: int) -> tuple[str, str | None]:
        return self.by_number.get(number, (name_of_unnamed(number), None))

    def find_numbers(self, metrics: str | None) -> frozenset[int] | None:
        """Of the metrics with these comma-separated names; None for all metrics. A metric whose own name is the whole text, with
        its commas, comes first."""
        if metrics is None:
            return None
        for wanted in ({metrics}, {name.strip() for name in metrics.split(",")}):
            numbers = frozenset(number for number, (name, _) in self.by_number.items() if name in wanted)
            if numbers:
                return numbers
        return frozenset()

    def to_reading(self, unpacked: UnpackedReading) -> Reading:
        at_ms, number, value, text, reported_ms = unpacked
        name, unit = self.name_and_unit(number)
        return Reading(name, value, text, unit, at_ms, reported_ms)


def single_number(numbers: frozenset[int] | None) -> int | None:
    """What the engine can select by itself."""
    return next(iter(numbers)) if numbers is not None and len(numbers) == 1 else None


@service
class TelemetryQueryService:
    """`is_stored_elsewhere`: whether another instance ingests the telemetry of this device number now. If so, its latest
    values come from the database, by an engine of `create_engine`."""

    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    engine: TelemetryEngine
    create_engine: Callable[[], TelemetryEngine]
    authorizer: Authorizer
    stored: ReadingHistory = field(default_factory=ReadingHistory)
    is_stored_elsewhere: Callable[[int], bool] = lambda device_no: False

    async def readable_device(self, caller: Caller, device_id: DeviceId) -> Device:
        """The device, if the caller may read its telemetry. Raises NotFound, PermissionDenied."""
        async with self.uow.read() as tx:
            return await self._get_readable_device(tx, caller, device_id)

    async def latest(self, caller: Caller, device_id: DeviceId) -> tuple[Device, Sequence[Reading]]:
        """The device, and the latest value of each metric, ordered by name. Raises NotFound, PermissionDenied."""
        async with self.uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            if self.is_stored_elsewhere(device.device_no):
                latest = await self._stored_latest(tx, device)
            else:
                latest = self.engine.latest(device.device_no)
        values = sorted(latest, key=lambda reading: reading.metric)
        return device, [Reading(each.metric, *value_columns(each.value), each.unit, each.ts_ms) for each in values]

    async def _stored_latest(self, tx: TelemetryTx, device: Device) -> Sequence[LatestReading]:
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
        self,
        caller: Caller,
        device_id: DeviceId,
        span: HistoryTimeRange,
        *,
        metric: str | None,
        limit: int,
        after: ReadingPosition | None = None,
        newest_first: bool = True,
    ) -> tuple[list[Reading], ReadingPosition | None]:
        """At most `limit` readings behind the position, in the order of their times; and the position behind which there may be
        more, None if there are none. Fewer than `limit` with a position: so many messages had no such metric. `metric`: names,
        comma-separated. Raises NotFound, PermissionDenied, Unavailable."""
        found: list[Reading] = []
        async with self.uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            names = await DeviceMetricNames.load(tx, device)
            numbers = names.find_numbers(metric)
            if numbers is not None and not numbers:
                return [], None
            at_ms, digest, skipped = after or (0, 0, 0)
            # Once more from the last message.
            last = min(digest, _MAX_DIGEST) + 1 if newest_first else max(digest, -_MAX_DIGEST - 1) - 1
            key = None if after is None else (at_ms, last)
            scanned = 0
            while True:
                rows, key = await self.stored.read_keyed_page(tx, device, span, PAGE_MESSAGES, key, newest_first=newest_first)
                page = self._unpack(_without_digests(rows), numbers)
                if len(found) + len(page) <= limit and (scanned or after is None) and key is not None:
                    found += map(names.to_reading, page)  # quicker than message by message
                    scanned += len(rows)
                    if len(found) == limit or scanned >= MAX_SCANNED_MESSAGES:
                        return found, (*key, _WHOLE_MESSAGE)
                    continue
                for *message, packed in rows:
                    unpacked = self._unpack([(message[0], packed)], numbers)
                    begin = skipped if message == [at_ms, digest] else 0
                    room = limit - len(found)
                    found += [names.to_reading(each) for each in unpacked[begin : begin + room]]
                    if len(unpacked) - begin > room:
                        return found, (message[0], message[1], begin + room)
                scanned += len(rows)
                if key is None:
                    return found, None

    async def export(
        self, caller: Caller, device_id: DeviceId, span: HistoryTimeRange, *, metric: str | None
    ) -> AsyncIterator[list[Reading]]:
        """Readings, oldest first, a page of messages at a time. Each page is a short read of its own, so an export blocks nobody.
        `metric`: names, comma-separated.

        Raises NotFound and PermissionDenied with the first page."""
        async with self.uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            names = await DeviceMetricNames.load(tx, device)
        numbers = names.find_numbers(metric)
        if numbers is not None and not numbers:
            return
        after: MessageKey | None = None
        while True:
            async with self.uow.read() as tx:
                rows, after = await self.stored.read_page(tx, device, span, EXPORT_PAGE_MESSAGES, after, newest_first=False)
            yield [names.to_reading(unpacked) for unpacked in self._unpack(rows, numbers)]
            if after is None:
                return

    def _unpack(self, rows: PackedRows, numbers: frozenset[int] | None) -> Sequence[UnpackedReading]:
        number = single_number(numbers)
        found = self.engine.unpack_readings(rows, number)
        return found if numbers is None or number is not None else [each for each in found if each[1] in numbers]

    async def _get_readable_device(self, tx: TelemetryTx, caller: Caller, device_id: DeviceId) -> Device:
        return await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())


@service
class ReadingsAsEventsService:
    """Shows readings as events, for `GET /events?type=telemetry`: newest first, of one device or of all devices of an account.

    Readings are not in the event log, so they are merged from the rows of each device. No device is read further than the
    requested page needs."""

    uow: UnitOfWork[TelemetryTx]
    engine: TelemetryEngine

    async def page(
        self, account_id: AccountId, *, device_id: DeviceId | None, limit: int, after: Position | None
    ) -> Sequence[ReadingAsEvent]:
        """Newest first, behind this `place` of a reading."""
        async with self.uow.read() as tx:
            devices = (await self._list_devices(tx, account_id, device_id))[:MAX_DEVICES]
            found = [await self._newest_records(tx, device, limit, after) for device in devices]
        return list(islice(heapq.merge(*found, key=_newest_first), limit))

    async def count(self, account_id: AccountId, *, device_id: DeviceId | None, limit: int) -> int:
        """The number of stored readings, counted up to `limit`."""
        counted = 0
        async with self.uow.read() as tx:
            for device in await self._list_devices(tx, account_id, device_id):
                rows = await tx.readings.list_between(device.device_no, 0, MAX_TIME_MS, limit - counted)
                counted += len(self.engine.unpack_readings(rows))
                if counted >= limit:
                    return limit
        return counted

    async def _list_devices(self, tx: TelemetryTx, account_id: AccountId, device_id: DeviceId | None) -> Sequence[Device]:
        if device_id is not None:
            device = await tx.devices.get(account_id, device_id)
            return [] if device is None else [device]
        seen = [device for device in await tx.devices.list(account_id) if device.last_seen_ms is not None]
        return sorted(seen, key=lambda device: -(device.last_seen_ms or 0))

    async def _newest_records(self, tx: TelemetryTx, device: Device, wanted: int, after: Position | None) -> list[ReadingAsEvent]:
        """At least the next `wanted` ones. The messages of one millisecond are read together: their order is another one here."""
        number, rows = device.device_no, list[tuple[int, bytes]]()
        until_ms = MAX_TIME_MS
        if after is not None:
            until_ms = int(after[0])
            rows += await tx.readings.list_between(number, until_ms, until_ms + 1, MAX_SCANNED_MESSAGES)
        older = await tx.readings.list_between(number, 0, until_ms, wanted)
        if older:
            last_ms = older[-1][0]
            rows += [row for row in older if row[0] != last_ms]
            rows += await tx.readings.list_between(number, last_ms, last_ms + 1, MAX_SCANNED_MESSAGES)
        names = await DeviceMetricNames.load(tx, device)
        records = [
            ReadingAsEvent(device.device_id, device.name, at_ms, metric, value, text, unit)
            for at_ms, number, value, text, _ in self.engine.unpack_readings(rows)
            for metric, unit in [names.name_and_unit(number)]
        ]
        behind = None if after is None else (-int(after[0]), *after[1:])
        return sorted((each for each in records if behind is None or _newest_first(each) > behind), key=_newest_first)


def _newest_first(record: ReadingAsEvent) -> Position:
    return -record.at_ms, *record.place[1:]
