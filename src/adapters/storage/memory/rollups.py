"""Roll-ups, and marks for hours that still need one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from adapters.storage.memory.shelves import Book, Shelf
from domain.telemetry.ports import Mark

ROLLUPS: Shelf[tuple[int, int], bytes] = Shelf("rollups")
DUE: Shelf[tuple[int, int], int] = Shelf("rollups_due")


class MemoryRollups:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def mark(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        due = self._book.edit(DUE)
        for key in hours:
            due[key] = max(at_ms, due[key] + 1) if key in due else at_ms

    async def due(self, before_hour: int, limit: int) -> Sequence[Mark]:
        marks = [(*key, at_ms) for key, at_ms in self._book.rows(DUE).items() if key[1] < before_hour]
        return sorted(marks, key=lambda mark: (mark[1], mark[0]))[:limit]

    async def oldest_due(self) -> int | None:
        return min((hour for _, hour in self._book.rows(DUE)), default=None)

    async def due_of(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        return sorted((h for no, h in self._book.rows(DUE) if no == device_no and from_hour <= h < until_hour), reverse=True)

    async def settle(self, marks: Sequence[Mark]) -> Set[tuple[int, int]]:
        rows = self._book.rows(DUE)
        same = {mark[:2] for mark in marks if rows.get(mark[:2]) == mark[2]}
        self._book.drop(DUE, list(same))
        return same

    async def get(self, hours: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], bytes]:
        rows = self._book.rows(ROLLUPS)
        return {key: rows[key] for key in hours if key in rows}

    async def put(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        kept = self._book.edit(ROLLUPS)
        for device_no, hour, packed in rows:
            kept[device_no, hour] = packed

    async def between(self, device_no: int, from_hour: int, until_hour: int, limit: int) -> Sequence[tuple[int, bytes]]:
        rows = self._book.rows(ROLLUPS).items()
        mine = [(h, packed) for (no, h), packed in rows if no == device_no and from_hour <= h < until_hour]
        return sorted(mine, reverse=True)[:limit]

    async def delete_some(self, device_no: int, limit: int) -> int:
        marks = [key for key in self._book.rows(DUE) if key[0] == device_no][:limit]
        mine = [key for key in self._book.rows(ROLLUPS) if key[0] == device_no][:limit]
        return self._book.drop(DUE, marks) + self._book.drop(ROLLUPS, mine)

    async def forget_before(self, device_no: int, hour: int, limit: int) -> int:
        old = sorted(key for key in self._book.rows(ROLLUPS) if key[0] == device_no and key[1] < hour)
        return self._book.drop(ROLLUPS, old[:limit])

    async def older_than(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        return sorted({no for no, h in self._book.rows(ROLLUPS) if h < hour and no >= first_device})[:limit]
