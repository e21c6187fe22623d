"""Reads a device's messages page by page from the database and, before the time that the database keeps, from the reading store.

A worker adds messages to the store and then deletes them in the database. So whoever first reads the database and then the store
misses none; one that is in both has the same key. A store that does not answer fails the query: a shorter history would be false.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from domain.devices.model import Device
from domain.kernel.clock import HOUR_MS, Clock
from domain.telemetry.ports import HasReadings, MessageKey
from domain.telemetry.queries.message_paging import HistoryTimeRange, PackedRows
from domain.telemetry.reading_archive_store import ArchivedMessageReadings, ReadingArchiveStore, number_of_unnamed, oldest_kept_ms
from domain.telemetry.reading_packing import pack_readings

KeyedRow = tuple[int, int, bytes]
"""(Unix ms, digest, packed)"""


@dataclass(frozen=True, slots=True)
class ReadingArchiveWithCutoff:
    store: ReadingArchiveStore
    clock: Clock
    database_days: int
    """Days that the database keeps."""

    def end_ms(self) -> int:
        """The database has every reading from then on, also if the clock has just been set back by less than an hour."""
        return oldest_kept_ms(self.clock.now_ms(), self.database_days) + HOUR_MS


class DatabaseAndArchiveReadingHistory:
    def __init__(self, older: ReadingArchiveWithCutoff | None = None) -> None:
        """Without `older`, the database has all readings."""
        self._older = older

    async def read_page(
        self,
        tx: HasReadings,
        device: Device,
        span: HistoryTimeRange,
        size: int,
        after: MessageKey | None,
        *,
        newest_first: bool = True,
    ) -> tuple[PackedRows, MessageKey | None]:
        """The rows, and the key after which the next page starts; None after the last page. Raises Unavailable."""
        found = await tx.readings.list_page(
            device.device_no, span.since_ms, span.until_ms, size, after, newest_first=newest_first
        )
        if self._older is None or not _has_older(span, self._older.end_ms(), None if newest_first else after):
            return _page(found, size)
        end_ms = min(span.until_ms, self._older.end_ms())
        newer = [row for row in found if row[0] >= end_ms] if newest_first else []
        if newer:  # a page of its own: whoever needs no more does not depend on the store
            return _page(newer, len(newer))
        older = await self._older.store.list_page(
            (device.device_no, device.device_id), span.since_ms, end_ms, size, after, newest_first=newest_first
        )
        return _page(await _merge(tx, device, found, older, newest_first=newest_first), size)

    async def iterate_pages(
        self, tx: HasReadings, device: Device, span: HistoryTimeRange, size: int
    ) -> AsyncIterator[PackedRows]:
        """Yield all pages, newest first, in the snapshot of the transaction. Raises Unavailable."""
        after: MessageKey | None = None
        while True:
            rows, after = await self.read_page(tx, device, span, size, after)
            if rows:
                yield rows
            if after is None:
                return


def _has_older(span: HistoryTimeRange, end_ms: int, after: MessageKey | None) -> bool:
    """Whether the range has times before `end_ms`, after the key `after` if there is one."""
    return span.since_ms < end_ms and (after is None or after[0] < end_ms)


def _page(found: Sequence[KeyedRow], size: int) -> tuple[PackedRows, MessageKey | None]:
    rows = [(at_ms, packed) for at_ms, _, packed in found[:size]]
    return rows, None if len(found) < size else found[size - 1][:2]


async def _merge(
    tx: HasReadings, device: Device, found: Sequence[KeyedRow], older: Sequence[ArchivedMessageReadings], *, newest_first: bool
) -> list[KeyedRow]:
    numbers = {name: number for number, name, _ in await tx.readings.list_device_metrics(device.device_no)} if older else {}
    rows = {(message.at_ms, message.digest): _to_packed(message, numbers) for message in older}
    rows |= {(at_ms, digest): packed for at_ms, digest, packed in found}
    return [(*key, rows[key]) for key in sorted(rows, reverse=newest_first)]


def _to_packed(message: ArchivedMessageReadings, numbers: Mapping[str, int]) -> bytes:
    """Without metrics that the database does not know: it was restored from a backup of an earlier time."""
    readings = ((numbers.get(name) or number_of_unnamed(name), value) for name, value in message.readings)
    return pack_readings(((number, value) for number, value in readings if number), message.ahead_ms)
