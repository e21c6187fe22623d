"""Which readings were stored since a moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from domain.telemetry.ports import LateMark, PackedRow, ReadingRange
from support.memory_storage.tables import Database, Table
from support.memory_storage.telemetry import READINGS

STORE_TIME: Table[int, int] = Table("reading_store_time")
MARKS_SINCE: Table[int, int] = Table("marks_since")
LATE: Table[tuple[int, int], tuple[int, int]] = Table("late_readings")


class MemoryArrivalRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def store_time(self) -> int:
        return self._database.rows(STORE_TIME).get(1, 0)

    async def marks_since(self) -> int:
        return self._database.rows(MARKS_SINCE).get(1, 0)

    async def advance_store_time(self, now_s: int) -> int:
        rows = self._database.writable_rows(STORE_TIME)
        rows[1] = max(now_s, rows.get(1, 0))
        return rows[1]

    async def mark_late(self, marks: Sequence[LateMark]) -> None:
        rows = self._database.writable_rows(LATE)
        for device_no, minute, from_ms, until_ms in marks:
            before = rows.get((device_no, minute), (from_ms, until_ms))
            rows[(device_no, minute)] = (min(before[0], from_ms), max(before[1], until_ms))

    async def list_late(self, device_nos: Collection[int], since_minute: int) -> Mapping[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for (device_no, minute), (from_ms, until_ms) in self._database.rows(LATE).items():
            if device_no in device_nos and minute >= since_minute:
                before = found.get(device_no, (from_ms, until_ms))
                found[device_no] = (min(before[0], from_ms), max(before[1], until_ms))
        return found

    async def delete_late_before(self, minute: int, limit: int) -> int:
        old = [key for key in self._database.rows(LATE) if key[1] < minute]
        if old:
            since = self._database.writable_rows(MARKS_SINCE)
            since[1] = max(minute * 60, since.get(1, 0))
        return self._database.delete(LATE, old[:limit])

    async def count_messages(self, ranges: Sequence[ReadingRange], limit: int) -> Sequence[int]:
        return [min(limit, len(await self.list_messages([each]))) for each in ranges]

    async def list_messages(self, ranges: Sequence[ReadingRange]) -> Sequence[PackedRow]:
        return sorted(
            (*key, packed)
            for key, packed in self._database.rows(READINGS).items()
            if any(device_no == key[0] and from_ms <= key[1] < until_ms for device_no, from_ms, until_ms in ranges)
        )
