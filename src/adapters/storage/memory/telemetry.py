"""Readings, the names of metrics, and the last values."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.storage.memory.shelves import Book, Shelf
from domain.telemetry.ports import END_OF_TIME_MS, PackedRow, Place

READINGS: Shelf[tuple[int, int, int], bytes] = Shelf("readings")
NAMES: Shelf[int, str] = Shelf("metric_names")
METRICS: Shelf[tuple[int, int], str | None] = Shelf("device_metrics")
LATEST: Shelf[int, tuple[int, bytes]] = Shelf("latest")
GRAVES: Shelf[int, int] = Shelf("graves")


class MemoryReadings:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, rows: Sequence[PackedRow]) -> None:
        kept = self._book.edit(READINGS)
        for device_no, at_ms, digest, packed in rows:
            kept.setdefault((device_no, at_ms, digest), packed)

    async def between(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        rows = self._book.rows(READINGS)
        keys = sorted(key for key in rows if key[0] == device_no and since_ms <= key[1] < until_ms)
        return [(key[1], rows[key]) for key in (reversed(keys) if newest_first else keys)][:limit]

    async def page(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, after: Place | None, *, newest_first: bool = True
    ) -> Sequence[tuple[int, int, bytes]]:
        rows = self._book.rows(READINGS)
        keys = sorted((key for key in rows if key[0] == device_no and since_ms <= key[1] < until_ms), reverse=newest_first)
        if after is not None:
            keys = [key for key in keys if (key[1:] < after if newest_first else key[1:] > after)]
        return [(key[1], key[2], rows[key]) for key in keys[:limit]]

    async def add_names(self, names: Sequence[tuple[int, str]]) -> None:
        kept = self._book.edit(NAMES)
        for number, name in names:
            kept.setdefault(number, name)

    async def names(self) -> Sequence[tuple[int, str]]:
        return sorted(self._book.rows(NAMES).items())

    async def add_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None:
        kept = self._book.edit(METRICS)
        for device_no, metric_no, unit in metrics:
            kept[(device_no, metric_no)] = unit

    async def metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        names = self._book.rows(NAMES)
        mine = [(key[1], unit) for key, unit in self._book.rows(METRICS).items() if key[0] == device_no]
        return sorted(((no, names[no], unit) for no, unit in mine if no in names), key=lambda metric: metric[1])

    async def units(self) -> Sequence[tuple[int, int, str | None]]:
        return [(*key, unit) for key, unit in sorted(self._book.rows(METRICS).items(), key=lambda row: row[0])]

    async def put_latest(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        kept = self._book.edit(LATEST)
        for device_no, at_ms, packed in checkpoints:
            kept[device_no] = (at_ms, packed)

    async def latest(self) -> Sequence[tuple[int, int, bytes]]:
        return [(device_no, *value) for device_no, value in sorted(self._book.rows(LATEST).items())]

    async def newer_than_latest(self, limit: int, after: tuple[int, int, int] | None) -> Sequence[PackedRow]:
        rows, latest = self._book.rows(READINGS), self._book.rows(LATEST)
        graves = self._book.rows(GRAVES)
        newer = [key for key in rows if key[0] not in graves and (key[0] not in latest or key[1] > latest[key[0]][0])]
        return [(*key, rows[key]) for key in sorted(newer) if after is None or key > after][:limit]

    async def delete_some(self, device_no: int, limit: int, before_ms: int = END_OF_TIME_MS) -> int:
        mine = sorted(key for key in self._book.rows(READINGS) if key[0] == device_no and key[1] < before_ms)
        return self._book.drop(READINGS, mine[:limit])

    async def older_than(self, before_ms: int, first_device: int, limit: int) -> Sequence[int]:
        old = {key[0] for key in self._book.rows(READINGS) if key[1] < before_ms and key[0] >= first_device}
        return sorted(old)[:limit]
