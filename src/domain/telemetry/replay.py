"""The readings that a feed client missed while it was away, from the stored ones.

A client may get a reading again that it has already: ranges are somewhat too wide, and what arrives during the replay is also
published live. Its `eventId` is the same, so clients that know the ids of a few seconds see each reading once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from domain.devices.model import Device, DeviceStatus
from domain.events.feed_model import FeedFilter
from domain.events.model import Event
from domain.kernel.clock import MINUTE_MS, SECOND_MS
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine
from domain.telemetry.model import name_of_unnamed, reading_event
from domain.telemetry.ports import LATE_AFTER_MS, MAX_TIME_MS, PackedRow, ReadingRange, TelemetryTx

MAX_READINGS = 10_000
"""More than these are not sent again; the client reads the history instead."""
PAGE_MESSAGES = 500
RANGES_PER_COUNT = 50
"""A count reads at most this many times MAX_READINGS index entries."""


@dataclass(frozen=True, slots=True)
class FeedReadingReplayPlan:
    """What to send: pages of ranges. Readings stored before `store_time_s` are in it, or the client has them."""

    store_time_s: int
    devices: Mapping[int, Device]
    pages: Sequence[Sequence[ReadingRange]]


@service
class FeedReadingReplayService:
    """`overlap_s`: by how much a batch may be stored later than others that have the same store time, because several
    instances store batches at the same time. `moved_before_ms`: older readings may be in another store."""

    uow: UnitOfWork[TelemetryTx]
    engine: TelemetryEngine
    overlap_s: int = 0
    moved_before_ms: Callable[[], int] = lambda: -MAX_TIME_MS

    async def store_time(self) -> int:
        """The store time of the newest readings, Unix seconds."""
        async with self.uow.read() as tx:
            return await tx.arrivals.store_time()

    async def find(self, wanted: FeedFilter, allowed: Collection[DeviceId] | None, since_s: int) -> FeedReadingReplayPlan | None:
        """The messages stored since the store time `since_s`, of the devices that the client may see (`allowed` None: all).

        None if there are more than MAX_READINGS of them, if some may be in another store, or if `since_s` is too old, or of
        another database."""
        async with self.uow.read() as tx:
            store_time_s = await tx.arrivals.store_time()
            if not await tx.arrivals.marks_since() <= since_s <= store_time_s:
                return None
            devices = await _list_devices(tx, wanted, allowed)
            ranges = await _missed_ranges(tx, sorted(devices), since_s - self.overlap_s)
            if any(from_ms < self.moved_before_ms() for _, from_ms, _ in ranges):
                return None
            counted = await _count_messages(tx, ranges)
        return None if counted is None else FeedReadingReplayPlan(store_time_s, devices, _to_pages(counted))

    async def is_too_long(self, replay: FeedReadingReplayPlan) -> bool:
        """Whether it has more than MAX_READINGS; a message may have many."""
        counted = 0
        async for rows in self._list_messages(replay):
            counted += len(self.engine.unpack_readings([(row[1], row[3]) for row in rows]))
            if counted > MAX_READINGS:
                return True
        return False

    async def list_events(self, replay: FeedReadingReplayPlan) -> AsyncIterator[Sequence[Event]]:
        """The readings as events, some at a time, device by device, oldest first."""
        async for rows in self._list_messages(replay):
            yield await self._to_events(replay, rows)

    async def _list_messages(self, replay: FeedReadingReplayPlan) -> AsyncIterator[Sequence[PackedRow]]:
        for page in replay.pages:
            async with self.uow.read() as tx:
                rows = await tx.arrivals.list_messages(page)
            for first in range(0, len(rows), PAGE_MESSAGES):
                yield rows[first : first + PAGE_MESSAGES]

    async def _to_events(self, replay: FeedReadingReplayPlan, rows: Sequence[PackedRow]) -> Sequence[Event]:
        by_device: dict[int, list[tuple[int, bytes]]] = {}
        for device_no, at_ms, _, packed in rows:
            by_device.setdefault(device_no, []).append((at_ms, packed))
        async with self.uow.read() as tx:
            metrics = await tx.readings.list_metrics_of_devices(list(by_device))
        return [
            reading_event(replay.devices[device_no], at_ms, name, value, text, unit)
            for device_no, messages in by_device.items()
            for at_ms, number, value, text, _ in self.engine.unpack_readings(messages)
            for name, unit in [metrics.get((device_no, number), (name_of_unnamed(number), None))]
        ]


async def _list_devices(tx: TelemetryTx, wanted: FeedFilter, allowed: Collection[DeviceId] | None) -> dict[int, Device]:
    return {
        device.device_no: device
        for device in await tx.devices.list(wanted.account_id)
        if device.status is not DeviceStatus.DELETING
        and wanted.device_id in (None, device.device_id)
        and (allowed is None or device.device_id in allowed)
    }


async def _missed_ranges(tx: TelemetryTx, device_nos: Sequence[int], since_s: int) -> list[ReadingRange]:
    since_ms = since_s * SECOND_MS - LATE_AFTER_MS
    late = await tx.arrivals.list_late(device_nos, since_s * SECOND_MS // MINUTE_MS)
    ranges = []
    for device_no in device_nos:
        from_ms, until_ms = late.get(device_no, (since_ms, since_ms))
        if from_ms < since_ms:
            ranges.append((device_no, from_ms, min(until_ms, since_ms)))
        ranges.append((device_no, since_ms, MAX_TIME_MS))
    return ranges


async def _count_messages(tx: TelemetryTx, ranges: Sequence[ReadingRange]) -> list[tuple[ReadingRange, int]] | None:
    """The ranges with messages, and how many; None if they have more than MAX_READINGS in all."""
    counted: list[tuple[ReadingRange, int]] = []
    total = 0
    for first in range(0, len(ranges), RANGES_PER_COUNT):
        some = ranges[first : first + RANGES_PER_COUNT]
        counts = await tx.arrivals.count_messages(some, MAX_READINGS + 1)
        total += sum(counts)
        if total > MAX_READINGS:
            return None
        counted += [(each, count) for each, count in zip(some, counts, strict=True) if count]
    return counted


def _to_pages(counted: Sequence[tuple[ReadingRange, int]]) -> list[list[ReadingRange]]:
    """Pages of about PAGE_MESSAGES. A range is not divided, so a page may have all messages of a device."""
    pages: list[list[ReadingRange]] = []
    room = 0
    for each, count in counted:
        if count > room:
            pages.append([])
            room = PAGE_MESSAGES
        pages[-1].append(each)
        room -= count
    return pages
