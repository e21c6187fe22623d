"""Roll-ups, and marks for hours that still need one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from domain.telemetry.ports import DueRollup
from support.memory_storage.tables import Database, Table

ROLLUPS: Table[tuple[int, int], bytes] = Table("rollups")
ROLLUPS_DUE: Table[tuple[int, int], int] = Table("rollups_due")


class MemoryDueRollupRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        due = self._database.writable_rows(ROLLUPS_DUE)
        for key in hours:
            due[key] = max(at_ms, due[key] + 1) if key in due else at_ms

    async def list_before(self, before_hour: int, limit: int) -> Sequence[DueRollup]:
        marks = [(*key, at_ms) for key, at_ms in self._database.rows(ROLLUPS_DUE).items() if key[1] < before_hour]
        return sorted(marks, key=lambda mark: (mark[1], mark[0]))[:limit]

    async def find_oldest_hour(self) -> int | None:
        return min((hour for _, hour in self._database.rows(ROLLUPS_DUE)), default=None)

    async def list_hours(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        return sorted(
            (h for no, h in self._database.rows(ROLLUPS_DUE) if no == device_no and from_hour <= h < until_hour), reverse=True
        )

    async def complete(self, marks: Sequence[DueRollup]) -> Set[tuple[int, int]]:
        rows = self._database.rows(ROLLUPS_DUE)
        same = {mark[:2] for mark in marks if rows.get(mark[:2]) == mark[2]}
        self._database.delete(ROLLUPS_DUE, list(same))
        return same

    async def delete_batch(self, device_no: int, limit: int) -> int:
        marks = [key for key in self._database.rows(ROLLUPS_DUE) if key[0] == device_no][:limit]
        return self._database.delete(ROLLUPS_DUE, marks)


class MemoryRollupRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_by_hours(self, hours: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], bytes]:
        rows = self._database.rows(ROLLUPS)
        return {key: rows[key] for key in hours if key in rows}

    async def upsert(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        kept = self._database.writable_rows(ROLLUPS)
        for device_no, hour, packed in rows:
            kept[device_no, hour] = packed

    async def list_between(
        self, device_no: int, from_hour: int, until_hour: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        rows = self._database.rows(ROLLUPS).items()
        mine = [(h, packed) for (no, h), packed in rows if no == device_no and from_hour <= h < until_hour]
        return sorted(mine, reverse=newest_first)[:limit]

    async def delete_batch(self, device_no: int, limit: int) -> int:
        mine = [key for key in self._database.rows(ROLLUPS) if key[0] == device_no][:limit]
        return self._database.delete(ROLLUPS, mine)

    async def delete_older_than(self, device_no: int, hour: int, limit: int) -> int:
        old = sorted(key for key in self._database.rows(ROLLUPS) if key[0] == device_no and key[1] < hour)
        return self._database.delete(ROLLUPS, old[:limit])

    async def list_devices_with_rollups_before(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        return sorted({no for no, h in self._database.rows(ROLLUPS) if h < hour and no >= first_device})[:limit]


class MemoryRangePartitionRepository:
    """All rows are in one place."""

    def __init__(self, database: Database) -> None: ...

    async def prepare(self, now_ms: int) -> None: ...

    async def divide_past(self, oldest_ms: int) -> None: ...

    async def drop_before(self, readings_ms: int, rollups_hour: int, *, keep_readings: bool = False) -> int:
        return 0
