"""Which readings were stored since a moment: the store time, marks of late uploads, and readings by ranges of their own times."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, func, select, text, tuple_, update

from adapters.storage.sql.dialect_functions import greatest, least
from adapters.storage.sql.dialect_inserts import insert
from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE
from adapters.storage.sql.statement_builders import listed_integers
from adapters.storage.sql.tables import late_readings, reading_store_time
from domain.kernel.clock import MINUTE_MS, SECOND_MS
from domain.telemetry.ports import LateMark, PackedRow, ReadingRange

s, m = reading_store_time.c, late_readings.c
_ONLY_ROW = 1


STORE_TIME = select(s.store_time_s, s.marks_since_s).where(s.row_id == _ONLY_ROW)
SET_MARKS_SINCE = update(reading_store_time).where(s.row_id == _ONLY_ROW, s.marks_since_s < bindparam("at_since"))
_set_time = insert(reading_store_time)
UPSERT_STORE_TIME = _set_time.on_conflict_do_update(
    index_elements=[s.row_id], set_={"store_time_s": greatest(s.store_time_s, _set_time.excluded.store_time_s)}
).returning(s.store_time_s)
_mark = insert(late_readings)
UPSERT_LATE = _mark.on_conflict_do_update(
    index_elements=[m.device_no, m.stored_minute],
    set_={"from_ms": least(m.from_ms, _mark.excluded.from_ms), "until_ms": greatest(m.until_ms, _mark.excluded.until_ms)},
)
LIST_LATE = (
    select(m.device_no, func.min(m.from_ms), func.max(m.until_ms))
    .where(m.device_no.in_(listed_integers()), m.stored_minute >= bindparam("at_minute"))
    .group_by(m.device_no)
)
DELETE_LATE = (
    delete(late_readings)
    .where(
        tuple_(m.device_no, m.stored_minute).in_(
            select(m.device_no, m.stored_minute).where(m.stored_minute < bindparam("at_minute")).limit(bindparam("at_limit"))
        )
    )
    .returning(m.device_no)
)
# A list of ranges is one JSON parameter: one statement per page.
_IN_RANGE = {
    SQLITE: "readings.device_no = r.value ->> '$[0]' AND readings.ts >= r.value ->> '$[1]' AND readings.ts < r.value ->> '$[2]'",
    POSTGRES: "readings.device_no = CAST(r.value ->> 0 AS bigint) AND readings.ts >= CAST(r.value ->> 1 AS bigint) "
    "AND readings.ts < CAST(r.value ->> 2 AS bigint)",
}
COUNT_MESSAGES = {
    SQLITE: text(
        f"SELECT r.key, (SELECT count(*) FROM (SELECT 1 FROM readings WHERE {_IN_RANGE[SQLITE]} LIMIT :at_limit)) "  # noqa: S608 - constants
        "FROM json_each(:at_ranges) AS r"
    ),
    POSTGRES: text(
        f"SELECT r.place, (SELECT count(*) FROM (SELECT 1 FROM readings WHERE {_IN_RANGE[POSTGRES]} LIMIT :at_limit) AS counted) "  # noqa: S608 - constants
        "FROM json_array_elements(CAST(:at_ranges AS json)) WITH ORDINALITY AS r (value, place)"
    ),
}
_COLUMNS = "SELECT readings.device_no, readings.ts, readings.digest, readings.packed"
LIST_MESSAGES = {
    SQLITE: text(f"{_COLUMNS} FROM json_each(:at_ranges) AS r CROSS JOIN readings WHERE {_IN_RANGE[SQLITE]}"),
    POSTGRES: text(
        f"{_COLUMNS} FROM json_array_elements(CAST(:at_ranges AS json)) AS r (value) JOIN readings ON {_IN_RANGE[POSTGRES]}"
    ),
}


class SqlReadingArrivalRepository(SqlRepository):
    async def store_time(self) -> int:
        rows = await self._session.read(STORE_TIME)
        return int(rows[0][0]) if rows else 0

    async def marks_since(self) -> int:
        rows = await self._session.read(STORE_TIME)
        return int(rows[0][1]) if rows else 0

    async def advance_store_time(self, now_s: int) -> int:
        [[store_time_s]] = await self._session.write(UPSERT_STORE_TIME, row_id=_ONLY_ROW, store_time_s=now_s, marks_since_s=0)
        return int(store_time_s)

    async def mark_late(self, marks: Sequence[LateMark]) -> None:
        rows = [dict(zip(("device_no", "stored_minute", "from_ms", "until_ms"), mark, strict=True)) for mark in marks]
        await self._session.execute_many(UPSERT_LATE, rows, defer=True)

    async def list_late(self, device_nos: Collection[int], since_minute: int) -> Mapping[int, tuple[int, int]]:
        rows = await self._session.read(LIST_LATE, at_listed=to_json(sorted(device_nos)), at_minute=since_minute)
        return {row[0]: (row[1], row[2]) for row in rows}

    async def delete_late_before(self, minute: int, limit: int) -> int:
        deleted = await self._count_changed(DELETE_LATE, at_minute=minute, at_limit=limit)
        if deleted:
            since_s = minute * MINUTE_MS // SECOND_MS
            await self._session.write(SET_MARKS_SINCE, at_since=since_s, marks_since_s=since_s)
        return deleted

    async def count_messages(self, ranges: Sequence[ReadingRange], limit: int) -> Sequence[int]:
        rows = await self._session.read(COUNT_MESSAGES[self._session.dialect], at_ranges=to_json(list(ranges)), at_limit=limit)
        return [row[1] for row in sorted(rows, key=lambda row: row[0])]

    async def list_messages(self, ranges: Sequence[ReadingRange]) -> Sequence[PackedRow]:
        rows = await self._session.read(LIST_MESSAGES[self._session.dialect], at_ranges=to_json(list(ranges)))
        return sorted((row[0], row[1], row[2], row[3]) for row in rows)
