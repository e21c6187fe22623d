"""Roll-ups per (device, hour), and due marks for hours that still need one. Both are small compared with the readings."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set

from sqlalchemy import BigInteger, bindparam, delete, func, literal_column, select, text

from adapters.storage.sql.db_session import POSTGRES, SQLITE
from adapters.storage.sql.dialect_functions import greatest
from adapters.storage.sql.dialect_inserts import insert
from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import to_json, upsert
from adapters.storage.sql.tables import rollups, rollups_due
from domain.telemetry.ports import DueRollup

d, u = rollups_due.c, rollups.c


_mark = insert(rollups_due)
UPSERT_DUE_HOURS = _mark.on_conflict_do_update(
    index_elements=[d.device_no, d.hour],
    set_={"marked_ms": greatest(_mark.excluded.marked_ms, literal_column("rollups_due.marked_ms + 1"))},
)
"""Marking an hour again changes the mark's time, so a worker that read the old mark does not delete the new one."""
LIST_DUE = (
    select(d.device_no, d.hour, d.marked_ms)
    .where(d.hour < bindparam("at_before"))
    .order_by(d.hour, d.device_no)
    .limit(bindparam("at_limit"))
)
OLDEST_DUE_HOUR = select(func.min(d.hour))
LIST_DUE_BY_DEVICE = (
    select(d.hour)
    .where(d.device_no == bindparam("at_device"), d.hour >= bindparam("at_from"), d.hour < bindparam("at_until"))
    .order_by(d.hour.desc())
)
# A list of keys is one JSON parameter: one statement per batch.
_JSON_KEYS = {
    SQLITE: "SELECT value ->> 0 AS device_no, value ->> 1 AS hour, value ->> 2 AS marked_ms FROM json_each(:at_listed)",
    POSTGRES: "SELECT CAST(value ->> 0 AS bigint) AS device_no, CAST(value ->> 1 AS bigint) AS hour, "
    "CAST(value ->> 2 AS bigint) AS marked_ms FROM json_array_elements(CAST(:at_listed AS json))",
}
COMPLETE_DUE = {
    dialect: text(
        f"DELETE FROM rollups_due WHERE (device_no, hour, marked_ms) IN ({among}) RETURNING device_no, hour"  # noqa: S608 - constants
    )
    for dialect, among in _JSON_KEYS.items()
}
GET = {
    dialect: text(
        f"SELECT u.device_no, u.hour, u.packed FROM ({among}) AS l "  # noqa: S608 - constants
        "CROSS JOIN rollups AS u WHERE u.device_no = l.device_no AND u.hour = l.hour"
    )
    for dialect, among in _JSON_KEYS.items()
}
DELETE_DUE_BATCH = (
    delete(rollups_due).where(d.device_no == bindparam("at_device"), d.hour <= bindparam("at_hour")).returning(d.hour)
)
LAST_DUE_OF_BATCH = (
    select(d.hour).where(d.device_no == bindparam("at_device")).order_by(d.hour).limit(1).offset(bindparam("at_offset"))
)

UPSERT = upsert(rollups, "packed")
LIST_BETWEEN = (
    select(u.hour, u.packed)
    .where(u.device_no == bindparam("at_device"), u.hour >= bindparam("at_from"), u.hour < bindparam("at_until"))
    .order_by(u.hour.desc())
    .limit(bindparam("at_limit"))
)
LAST_OF_BATCH = (
    select(u.hour)
    .where(u.device_no == bindparam("at_device"), u.hour < bindparam("at_before"))
    .order_by(u.hour)
    .limit(1)
    .offset(bindparam("at_offset"))
)
DELETE_BATCH = delete(rollups).where(u.device_no == bindparam("at_device"), u.hour <= bindparam("at_hour")).returning(u.hour)
_DEVICES_WITH_OLDER = """
WITH RECURSIVE hop (device_no) AS (
  SELECT (SELECT min(device_no) FROM rollups WHERE device_no >= :at_first)
  UNION ALL
  SELECT (SELECT min(device_no) FROM rollups WHERE device_no > hop.device_no) FROM hop WHERE hop.device_no IS NOT NULL
)
SELECT device_no FROM hop
WHERE device_no IS NOT NULL AND (SELECT min(u.hour) FROM rollups AS u WHERE u.device_no = hop.device_no) < :at_before
LIMIT :at_limit
"""
LIST_DEVICES_WITH_OLDER = {
    dialect: text(sql).bindparams(*[bindparam(name, type_=BigInteger()) for name in ("at_first", "at_before", "at_limit")])
    for dialect, sql in {
        SQLITE: _DEVICES_WITH_OLDER,
        # Ranges that have expired are dropped as a whole (range_partitions.py); only what is older than all ranges is searched.
        POSTGRES: re.sub(r"\brollups\b", "rollups_before", _DEVICES_WITH_OLDER),
    }.items()
}
_END_OF_TIME_HOUR = 2**40


class SqlRollupRepository(SqlRepository):
    async def mark_due(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        rows = [{"device_no": device_no, "hour": hour, "marked_ms": at_ms} for device_no, hour in hours]
        await self._session.execute_many(UPSERT_DUE_HOURS, rows)

    async def list_due(self, before_hour: int, limit: int) -> Sequence[DueRollup]:
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST_DUE, at_before=before_hour, at_limit=limit)]

    async def find_oldest_due_hour(self) -> int | None:
        return await self._number_or_none(OLDEST_DUE_HOUR)

    async def list_due_hours(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        rows = await self._session.read(LIST_DUE_BY_DEVICE, at_device=device_no, at_from=from_hour, at_until=until_hour)
        return [row[0] for row in rows]

    async def complete(self, marks: Sequence[DueRollup]) -> Set[tuple[int, int]]:
        rows = await self._session.write(COMPLETE_DUE[self._session.dialect], at_listed=to_json(marks))
        return {(row[0], row[1]) for row in rows}

    async def get_by_hours(self, hours: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], bytes]:
        rows = await self._session.read(GET[self._session.dialect], at_listed=to_json(sorted(hours)))
        return {(row[0], row[1]): row[2] for row in rows}

    async def upsert(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        values = [{"device_no": device_no, "hour": hour, "packed": packed} for device_no, hour, packed in rows]
        await self._session.execute_many(UPSERT, values)

    async def list_between(self, device_no: int, from_hour: int, until_hour: int, limit: int) -> Sequence[tuple[int, bytes]]:
        rows = await self._session.read(LIST_BETWEEN, at_device=device_no, at_from=from_hour, at_until=until_hour, at_limit=limit)
        return [(row[0], row[1]) for row in rows]

    async def delete_batch(self, device_no: int, limit: int) -> int:
        last = await self._session.read(LAST_DUE_OF_BATCH, at_device=device_no, at_offset=limit - 1)
        unmarked = await self._session.write(
            DELETE_DUE_BATCH, at_device=device_no, at_hour=last[0][0] if last else _END_OF_TIME_HOUR
        )
        return len(unmarked) + await self.delete_older_than(device_no, _END_OF_TIME_HOUR, limit)

    async def delete_older_than(self, device_no: int, hour: int, limit: int) -> int:
        last = await self._session.read(LAST_OF_BATCH, at_device=device_no, at_before=hour, at_offset=limit - 1)
        return await self._count_changed(DELETE_BATCH, at_device=device_no, at_hour=last[0][0] if last else hour - 1)

    async def list_devices_with_rollups_before(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        rows = await self._session.read(
            LIST_DEVICES_WITH_OLDER[self._session.dialect], at_first=first_device, at_before=hour, at_limit=limit
        )
        return [row[0] for row in rows]
