"""The life of the database in memory."""

from __future__ import annotations

from dataclasses import replace

from domain.kernel.life import StoredLife
from support.memory_storage.tables import Database, Table

LIFE: Table[int, StoredLife] = Table("database_life")
_ONLY_ROW = 1
FIRST = StoredLife("memory")


class MemoryLifeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self) -> StoredLife:
        return self._database.rows(LIFE).get(_ONLY_ROW, FIRST)

    async def renew(self, before: str, after: StoredLife) -> bool:
        if (await self.get()).life != before:
            return False
        self._database.writable_rows(LIFE)[_ONLY_ROW] = after
        return True

    async def mark_recovered(self, life: str, began_ms: int) -> bool:
        stored = await self.get()
        if stored.life != life or stored.pending is None:
            return False
        self._database.writable_rows(LIFE)[_ONLY_ROW] = replace(stored, began_ms=began_ms, pending=None)
        return True
