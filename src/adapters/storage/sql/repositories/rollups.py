"""Roll-ups by (device, hour), and marks for hours that still need one; both small beside the readings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from sqlalchemy import BigInteger, ColumnElement, bindparam, delete, func, literal_column, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.rows import replacing, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE, Session
from adapters.storage.sql.tables import rollups, rollups_due
from domain.telemetry.ports import Mark

d, u = rollups_due.c, rollups.c


def _marking() -> dict[str, ClauseElement]:
    """A mark that is there goes on, and never to the time it had: whoever read it before must not take it away."""
    on_sqlite, on_postgres = sqlite.insert(rollups_due), postgresql.insert(rollups_due)
    keys = [d.device_no, d.hour]
    later: ColumnElement[int] = literal_column("rollups_due.marked_ms + 1")
    return {
        SQLITE: on_sqlite.on_conflict_do_update(
            index_elements=keys, set_={"marked_ms": func.max(on_sqlite.excluded.marked_ms, later)}
        ),
        POSTGRES: on_postgres.on_conflict_do_update(
            index_elements=keys, set_={"marked_ms": func.greatest(on_postgres.excluded.marked_ms, later)}
        ),
    }


MARK = _marking()
DUE = (
    select(d.device_no, d.hour, d.marked_ms)
    .where(d.hour < bindparam("at_before"))
    .order_by(d.hour, d.device_no)
    .limit(bindparam("at_limit"))
)
OLDEST_DUE = select(func.min(d.hour))
DUE_OF = (
    select(d.hour)
    .where(d.device_no == bindparam("at_device"), d.hour >= bindparam("at_from"), d.hour < bindparam("at_until"))
    .order_by(d.hour.desc())
)
# Lists of keys as one JSON parameter: one statement for a whole step.
_LISTED = {
    SQLITE: "SELECT value ->> 0 AS device_no, value ->> 1 AS hour, value ->> 2 AS marked_ms FROM json_each(:at_listed)",
    POSTGRES: "SELECT CAST(value ->> 0 AS bigint) AS device_no, CAST(value ->> 1 AS bigint) AS hour, "
    "CAST(value ->> 2 AS bigint) AS marked_ms FROM json_array_elements(CAST(:at_listed AS json))",
}
SETTLE = {
    dialect: text(
        f"DELETE FROM rollups_due WHERE (device_no, hour, marked_ms) IN ({among}) RETURNING device_no, hour"  # noqa: S608 - constants
    )
    for dialect, among in _LISTED.items()
}
GET = {
    dialect: text(
        f"SELECT u.device_no, u.hour, u.packed FROM ({among}) AS l "  # noqa: S608 - constants
        "CROSS JOIN rollups AS u WHERE u.device_no = l.device_no AND u.hour = l.hour"
    )
    for dialect, among in _LISTED.items()
}
UNMARK = delete(rollups_due).where(d.device_no == bindparam("at_device"), d.hour <= bindparam("at_hour")).returning(d.hour)
LAST_MARK = select(d.hour).where(d.device_no == bindparam("at_device")).order_by(d.hour).limit(1).offset(bindparam("at_offset"))

PUT = replacing(rollups, "packed")
BETWEEN = (
    select(u.hour, u.packed)
    .where(u.device_no == bindparam("at_device"), u.hour >= bindparam("at_from"), u.hour < bindparam("at_until"))
    .order_by(u.hour.desc())
    .limit(bindparam("at_limit"))
)
LAST_OF_STEP = (
    select(u.hour)
    .where(u.device_no == bindparam("at_device"), u.hour < bindparam("at_before"))
    .order_by(u.hour)
    .limit(1)
    .offset(bindparam("at_offset"))
)
FORGET = delete(rollups).where(u.device_no == bindparam("at_device"), u.hour <= bindparam("at_hour")).returning(u.hour)
OLDER_THAN = text("""
WITH RECURSIVE hop (device_no) AS (
  SELECT (SELECT min(device_no) FROM rollups WHERE device_no >= :at_first)
  UNION ALL
  SELECT (SELECT min(device_no) FROM rollups WHERE device_no > hop.device_no) FROM hop WHERE hop.device_no IS NOT NULL
)
SELECT device_no FROM hop
WHERE device_no IS NOT NULL AND (SELECT min(u.hour) FROM rollups AS u WHERE u.device_no = hop.device_no) < :at_before
LIMIT :at_limit
""").bindparams(*[bindparam(name, type_=BigInteger()) for name in ("at_first", "at_before", "at_limit")])
_END = 2**40


class SqlRollups:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def mark(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        rows = [{"device_no": device_no, "hour": hour, "marked_ms": at_ms} for device_no, hour in hours]
        await self._session.many(MARK[self._session.dialect], rows)

    async def due(self, before_hour: int, limit: int) -> Sequence[Mark]:
        return [(row[0], row[1], row[2]) for row in await self._session.read(DUE, at_before=before_hour, at_limit=limit)]

    async def oldest_due(self) -> int | None:
        [[hour]] = await self._session.read(OLDEST_DUE)
        return None if hour is None else int(hour)

    async def due_of(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        rows = await self._session.read(DUE_OF, at_device=device_no, at_from=from_hour, at_until=until_hour)
        return [row[0] for row in rows]

    async def settle(self, marks: Sequence[Mark]) -> Set[tuple[int, int]]:
        rows = await self._session.write(SETTLE[self._session.dialect], at_listed=to_json(marks))
        return {(row[0], row[1]) for row in rows}

    async def get(self, hours: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], bytes]:
        rows = await self._session.read(GET[self._session.dialect], at_listed=to_json(sorted(hours)))
        return {(row[0], row[1]): row[2] for row in rows}

    async def put(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        values = [{"device_no": device_no, "hour": hour, "packed": packed} for device_no, hour, packed in rows]
        await self._session.many(PUT[self._session.dialect], values)

    async def between(self, device_no: int, from_hour: int, until_hour: int, limit: int) -> Sequence[tuple[int, bytes]]:
        rows = await self._session.read(BETWEEN, at_device=device_no, at_from=from_hour, at_until=until_hour, at_limit=limit)
        return [(row[0], row[1]) for row in rows]

    async def delete_some(self, device_no: int, limit: int) -> int:
        last = await self._session.read(LAST_MARK, at_device=device_no, at_offset=limit - 1)
        unmarked = await self._session.write(UNMARK, at_device=device_no, at_hour=last[0][0] if last else _END)
        return len(unmarked) + await self.forget_before(device_no, _END, limit)

    async def forget_before(self, device_no: int, hour: int, limit: int) -> int:
        last = await self._session.read(LAST_OF_STEP, at_device=device_no, at_before=hour, at_offset=limit - 1)
        return len(await self._session.write(FORGET, at_device=device_no, at_hour=last[0][0] if last else hour - 1))

    async def older_than(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        rows = await self._session.read(OLDER_THAN, at_first=first_device, at_before=hour, at_limit=limit)
        return [row[0] for row in rows]
