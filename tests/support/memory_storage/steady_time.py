"""How far steady time has come."""

from __future__ import annotations

from support.memory_storage.tables import Database, Table

STEADY_TIME: Table[int, tuple[int, int]] = Table("steady_time")
_ONLY_ROW = 1


class MemorySteadyTimeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, wall_ms: int) -> tuple[int, int] | None:
        stored = self._database.rows(STEADY_TIME).get(_ONLY_ROW)
        return None if stored is None else (stored[0], wall_ms - stored[1])

    async def advance(self, steady_ms: int, wall_ms: int) -> int:
        rows = self._database.writable_rows(STEADY_TIME)
        greatest_ms = max(steady_ms, rows.get(_ONLY_ROW, (0, 0))[0])
        rows[_ONLY_ROW] = (greatest_ms, wall_ms)
        return greatest_ms
