"""Due marks: the hours of a device that have readings which their roll-up does not contain yet."""

from __future__ import annotations

from collections.abc import Sequence, Set

from sqlalchemy import bindparam, delete, func, literal_column, select, text

from adapters.storage.sql.dialect_functions import greatest
from adapters.storage.sql.dialect_inserts import insert
from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE
from adapters.storage.sql.tables import rollups_due
from domain.telemetry.ports import DueRollup

d = rollups_due.c
END_OF_TIME_HOUR = 2**40

_mark = insert(rollups_due)
UPSERT = _mark.on_conflict_do_update(
    index_elements=[d.device_no, d.hour],
    set_={"marked_ms": greatest(_mark.excluded.marked_ms, literal_column("rollups_due.marked_ms + 1"))},
)
"""Marking an hour again changes the mark's time, so a worker that read the old mark does not delete the new one."""
LIST = (
    select(d.device_no, d.hour, d.marked_ms)
    .where(d.hour < bindparam("at_before"))
    .order_by(d.hour, d.device_no)
    .limit(bindparam("at_limit"))
)
OLDEST_HOUR = select(func.min(d.hour))
LIST_BY_DEVICE = (
    select(d.hour)
    .where(d.device_no == bindparam("at_device"), d.hour >= bindparam("at_from"), d.hour < bindparam("at_until"))
    .order_by(d.hour.desc())
)
JSON_KEYS = {
    SQLITE: "SELECT value ->> 0 AS device_no, value ->> 1 AS hour, value ->> 2 AS marked_ms FROM json_each(:at_listed)",
    POSTGRES: "SELECT CAST(value ->> 0 AS bigint) AS device_no, CAST(value ->> 1 AS bigint) AS hour, "
    "CAST(value ->> 2 AS bigint) AS marked_ms FROM json_array_elements(CAST(:at_listed AS json))",
}
"""A list of keys is one JSON parameter: one statement per batch."""
COMPLETE = {
    dialect: text(
        f"DELETE FROM rollups_due WHERE (device_no, hour, marked_ms) IN ({among}) RETURNING device_no, hour"  # noqa: S608 - constants
    )
    for dialect, among in JSON_KEYS.items()
}
DELETE_BATCH = delete(rollups_due).where(d.device_no == bindparam("at_device"), d.hour <= bindparam("at_hour")).returning(d.hour)
LAST_OF_BATCH = (
    select(d.hour).where(d.device_no == bindparam("at_device")).order_by(d.hour).limit(1).offset(bindparam("at_offset"))
)


class SqlDueRollupRepository(SqlRepository):
    async def mark(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        rows = [{"device_no": device_no, "hour": hour, "marked_ms": at_ms} for device_no, hour in hours]
        await self._session.execute_many(UPSERT, rows)

    async def list_before(self, before_hour: int, limit: int) -> Sequence[DueRollup]:
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST, at_before=before_hour, at_limit=limit)]

    async def find_oldest_hour(self) -> int | None:
        return await self._number_or_none(OLDEST_HOUR)

    async def list_hours(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        rows = await self._session.read(LIST_BY_DEVICE, at_device=device_no, at_from=from_hour, at_until=until_hour)
        return [row[0] for row in rows]

    async def complete(self, marks: Sequence[DueRollup]) -> Set[tuple[int, int]]:
        rows = await self._session.write(COMPLETE[self._session.dialect], at_listed=to_json(marks))
        return {(row[0], row[1]) for row in rows}

    async def delete_batch(self, device_no: int, limit: int) -> int:
        last = await self._session.read(LAST_OF_BATCH, at_device=device_no, at_offset=limit - 1)
        return await self._count_changed(DELETE_BATCH, at_device=device_no, at_hour=last[0][0] if last else END_OF_TIME_HOUR)
