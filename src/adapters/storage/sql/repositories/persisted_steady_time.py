"""How far steady time has come: one row. PostgreSQL tells by its own clock how long ago that was: its instances may be on many
machines."""

from __future__ import annotations

from sqlalchemy import BigInteger, bindparam, text

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE
from domain.kernel.steady_time import StoredSteadyTime

_WALL_MS = {SQLITE: ":at_wall", POSTGRES: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"}
_GREATER = {SQLITE: "max", POSTGRES: "greatest"}
FIND = {
    dialect: text(f"SELECT steady_ms, {wall_ms} - wall_ms FROM steady_time WHERE row_id = 1")  # noqa: S608 - constants
    for dialect, wall_ms in _WALL_MS.items()
}
ADVANCE = {
    dialect: text(
        f"INSERT INTO steady_time (row_id, steady_ms, wall_ms) VALUES (1, :at_steady, {wall_ms}) "  # noqa: S608 - constants
        f"ON CONFLICT (row_id) DO UPDATE SET steady_ms = {_GREATER[dialect]}(steady_time.steady_ms, excluded.steady_ms), "
        "wall_ms = excluded.wall_ms RETURNING steady_ms"
    ).bindparams(bindparam("at_steady", type_=BigInteger()))
    for dialect, wall_ms in _WALL_MS.items()
}


class SqlSteadyTimeRepository(SqlRepository):
    async def find(self, wall_ms: int) -> StoredSteadyTime | None:
        rows = await self._session.read(FIND[self._session.dialect], **self._wall(wall_ms))
        return StoredSteadyTime(*rows[0]) if rows else None

    async def advance(self, steady_ms: int, wall_ms: int) -> int:
        [[greatest_ms]] = await self._session.write(ADVANCE[self._session.dialect], at_steady=steady_ms, **self._wall(wall_ms))
        return int(greatest_ms)

    def _wall(self, wall_ms: int) -> dict[str, int]:
        return {"at_wall": wall_ms} if self._session.dialect == SQLITE else {}
