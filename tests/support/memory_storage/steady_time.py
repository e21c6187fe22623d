"""How far steady time has come."""

from __future__ import annotations

from domain.kernel.clock import StoredSteadyTime
from support.memory_storage.tables import Database, Table

STEADY_TIME: Table[int, tuple[int, int, int | None]] = Table("steady_time")
_ONLY_ROW = 1


class MemorySteadyTimeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, wall_ms: int) -> StoredSteadyTime | None:
        stored = self._database.rows(STEADY_TIME).get(_ONLY_ROW)
        return None if stored is None else StoredSteadyTime(stored[0], wall_ms - stored[1], stored[2])

    async def advance(self, steady_ms: int, wall_ms: int, heard_ms: int | None = None) -> int:
        rows = self._database.writable_rows(STEADY_TIME)
        before = rows.get(_ONLY_ROW, (0, 0, None))
        greatest_ms = max(steady_ms, before[0])
        rows[_ONLY_ROW] = (greatest_ms, wall_ms, before[2] if heard_ms is None else heard_ms)
        return greatest_ms
