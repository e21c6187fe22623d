"""Roll-ups per (device, hour). They are small compared with the readings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, select, text

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.due_rollups import END_OF_TIME_HOUR, JSON_KEYS
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE
from adapters.storage.sql.statement_builders import devices_with_older, upsert
from adapters.storage.sql.tables import rollups

u = rollups.c

GET = {
    dialect: text(
        f"SELECT u.device_no, u.hour, u.packed FROM ({among}) AS l "  # noqa: S608 - constants
        "CROSS JOIN rollups AS u WHERE u.device_no = l.device_no AND u.hour = l.hour"
    )
    for dialect, among in JSON_KEYS.items()
}
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
LIST_DEVICES_WITH_OLDER = {
    SQLITE: devices_with_older("rollups", "hour"),
    # Ranges that have expired are dropped as a whole (range_partitions.py); only what is older than all ranges is searched.
    POSTGRES: devices_with_older("rollups_before", "hour"),
}


class SqlRollupRepository(SqlRepository):
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
        return await self.delete_older_than(device_no, END_OF_TIME_HOUR, limit)

    async def delete_older_than(self, device_no: int, hour: int, limit: int) -> int:
        last = await self._session.read(LAST_OF_BATCH, at_device=device_no, at_before=hour, at_offset=limit - 1)
        return await self._count_changed(DELETE_BATCH, at_device=device_no, at_hour=last[0][0] if last else hour - 1)

    async def list_devices_with_rollups_before(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        rows = await self._session.read(
            LIST_DEVICES_WITH_OLDER[self._session.dialect], at_first=first_device, at_before=hour, at_limit=limit
        )
        return [row[0] for row in rows]
