"""How far steady time has come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.kernel.clock import SteadyTimeAdvance, StoredSteadyTime
from support.memory_storage.tables import Database, Table


@dataclass(frozen=True)
class Row:
    steady_ms: int
    wall_ms: int
    heard_ms: int | None = None
    wall_offset_ms: int | None = None
    confirmed_ms: int | None = None


STEADY_TIME: Table[int, Row] = Table("steady_time")
_ONLY_ROW = 1


class MemorySteadyTimeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, wall_ms: int) -> StoredSteadyTime | None:
        row = self._database.rows(STEADY_TIME).get(_ONLY_ROW)
        if row is None:
            return None
        return StoredSteadyTime(row.steady_ms, wall_ms - row.wall_ms, row.heard_ms, row.wall_offset_ms, row.confirmed_ms)

    async def advance(
        self, steady_ms: int, wall_ms: int, heard_ms: int | None = None, wall_offset_ms: int | None = None
    ) -> SteadyTimeAdvance:
        rows = self._database.writable_rows(STEADY_TIME)
        before = rows.get(_ONLY_ROW, Row(0, 0))
        rows[_ONLY_ROW] = row = Row(
            max(steady_ms, before.steady_ms),
            wall_ms,
            before.heard_ms if heard_ms is None else heard_ms,
            before.wall_offset_ms if wall_offset_ms is None else wall_offset_ms,
            before.confirmed_ms,
        )
        return SteadyTimeAdvance(row.steady_ms, row.confirmed_ms)

    async def confirm_wall_time(self, wall_ms: int) -> None:
        rows = self._database.writable_rows(STEADY_TIME)
        if _ONLY_ROW in rows:
            rows[_ONLY_ROW] = replace(rows[_ONLY_ROW], confirmed_ms=wall_ms)
