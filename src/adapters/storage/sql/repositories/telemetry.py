"""Readings: rows pass through as the engine built them. Their key is (device, time, digest), and there is no other index.

A search for old or new rows of all devices therefore goes device by device.

Which readings were stored since a moment: the store time, marks of late uploads, and readings by ranges of their own times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from sqlalchemy import BindParameter, bindparam, delete, func, select, text, tuple_, update

from adapters.storage.sql.mapping import SqlRepository, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE
from adapters.storage.sql.statements import (
    BulkStatement,
    devices_with_older,
    greatest,
    insert,
    insert_or_ignore,
    least,
    listed,
    listed_integers,
    skip_scan,
    text_with_bigints,
    upsert,
)
from adapters.storage.sql.tables import device_latest, device_metrics, late_readings, metric_names, reading_store_time, readings
from domain.kernel.clock import MINUTE_MS, SECOND_MS
from domain.telemetry.ports import MAX_TIME_MS, LateMark, MessageKey, PackedRow, ReadingRange, RowKey

r = readings.c

ADD_MANY = BulkStatement(
    "INSERT OR IGNORE INTO readings (device_no, ts, digest, packed) VALUES (?, ?, ?, ?)",
    "INSERT INTO readings (device_no, ts, digest, packed) "
    "SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) ON CONFLICT DO NOTHING",
    row_by_row=True,
)
LIST_EXISTING = {
    SQLITE: text(
        "SELECT readings.device_no, readings.ts, readings.digest FROM json_each(:at_keys) AS r CROSS JOIN readings "
        "WHERE readings.device_no = r.value ->> '$[0]' AND readings.ts = r.value ->> '$[1]' "
        "AND readings.digest = r.value ->> '$[2]'"
    ),
    POSTGRES: text(
        "SELECT readings.device_no, readings.ts, readings.digest FROM json_array_elements(CAST(:at_keys AS json)) AS r (key) "
        "JOIN readings ON readings.device_no = CAST(r.key ->> 0 AS bigint) AND readings.ts = CAST(r.key ->> 1 AS bigint) "
        "AND readings.digest = CAST(r.key ->> 2 AS bigint)"
    ),
}
_TIME_RANGE = (r.device_no == bindparam("at_device"), r.ts >= bindparam("at_since"), r.ts < bindparam("at_until"))
_LIMIT: BindParameter[int] = bindparam("at_limit")
LIST_NEWEST_FIRST = select(r.ts, r.packed).where(*_TIME_RANGE).order_by(r.ts.desc(), r.digest.desc()).limit(_LIMIT)
LIST_OLDEST_FIRST = select(r.ts, r.packed).where(*_TIME_RANGE).order_by(r.ts, r.digest).limit(_LIMIT)

_KEY = tuple_(r.ts, r.digest)
_CURSOR_TS = bindparam("at_ts", type_=r.ts.type)
_CURSOR = tuple_(_CURSOR_TS, bindparam("at_digest", type_=r.digest.type))
_OF_DEVICE = select(r.ts, r.digest, r.packed).where(r.device_no == bindparam("at_device"))
_NEWEST_FIRST = (
    _OF_DEVICE.where(r.ts >= bindparam("at_since"), _KEY < _CURSOR).order_by(r.ts.desc(), r.digest.desc()).limit(_LIMIT)
)
_OLDEST_FIRST = _OF_DEVICE.where(r.ts < bindparam("at_until"), _KEY > _CURSOR).order_by(r.ts, r.digest).limit(_LIMIT)
# PostgreSQL leaves out no day by a comparison of rows. SQLite would start at the time alone, and pass over all messages of a
# device whose clock stands still.
PAGE_NEWEST_FIRST = {SQLITE: _NEWEST_FIRST, POSTGRES: _NEWEST_FIRST.where(r.ts <= _CURSOR_TS)}
PAGE_OLDEST_FIRST = {SQLITE: _OLDEST_FIRST, POSTGRES: _OLDEST_FIRST.where(r.ts >= _CURSOR_TS)}

# Readers go on, and other writers wait: otherwise two of them would give the same number to different names.
LOCK_METRIC_NAMES = text("LOCK TABLE metric_names IN SHARE ROW EXCLUSIVE MODE")
_ADD_METRIC_NAMES = (
    "INSERT INTO metric_names (metric_no, name) SELECT coalesce((SELECT max(metric_no) FROM metric_names), 0) "
    "+ row_number() OVER (ORDER BY listed.position), listed.name "
    "FROM {listed} WHERE NOT EXISTS (SELECT 1 FROM metric_names AS m WHERE m.name = listed.name)"
)
ADD_METRIC_NAMES = {
    SQLITE: text(_ADD_METRIC_NAMES.format(listed="(SELECT key AS position, value AS name FROM json_each(:at_listed)) AS listed")),
    POSTGRES: text(
        _ADD_METRIC_NAMES.format(
            listed="json_array_elements_text(CAST(:at_listed AS json)) WITH ORDINALITY AS listed (name, position)"
        )
    ),
}
FIND_METRIC_NUMBERS = select(metric_names.c.metric_no, metric_names.c.name).where(metric_names.c.name.in_(listed()))
LIST_METRIC_NAMES = select(metric_names.c.metric_no, metric_names.c.name).order_by(metric_names.c.metric_no)
UPSERT_METRICS = upsert(device_metrics, "unit", "reported")
DECLARE_METRICS = insert_or_ignore(device_metrics)
LIST_METRICS = (
    select(metric_names.c.metric_no, metric_names.c.name, device_metrics.c.unit)
    .join(device_metrics, device_metrics.c.metric_no == metric_names.c.metric_no)
    .where(device_metrics.c.device_no == bindparam("at_device"))
    .order_by(metric_names.c.name)
)
LIST_REPORTED = (
    select(metric_names.c.name)
    .join(device_metrics, device_metrics.c.metric_no == metric_names.c.metric_no)
    .where(device_metrics.c.device_no == bindparam("at_device"), device_metrics.c.reported)
)
LIST_METRICS_OF_DEVICES = (
    select(device_metrics.c.device_no, device_metrics.c.metric_no, metric_names.c.name, device_metrics.c.unit)
    .join(metric_names, device_metrics.c.metric_no == metric_names.c.metric_no)
    .where(device_metrics.c.device_no.in_(listed_integers()))
)
UPSERT_LATEST = upsert(device_latest, "ts", "packed")
LIST_LATEST = select(device_latest.c.device_no, device_latest.c.ts, device_latest.c.packed).order_by(device_latest.c.device_no)
FIND_LATEST = select(device_latest.c.ts, device_latest.c.packed).where(device_latest.c.device_no == bindparam("at_device"))

_UP_TO_CURSOR = "r.device_no = :at_device AND (r.ts < :at_ts OR (r.ts = :at_ts AND r.digest <= :at_digest))"
_NOT_DELETED = "NOT EXISTS (SELECT 1 FROM tombstones AS t WHERE t.device_no = hop.device_no)"
_NEWER = f"""r.device_no = hop.device_no
  AND r.ts >= CASE WHEN hop.device_no = :at_device AND :at_ts > coalesce(l.ts, -1) THEN :at_ts ELSE coalesce(l.ts + 1, 0) END
  AND NOT ({_UP_TO_CURSOR})"""
_WITH_LATEST = f"""{skip_scan("readings")}
SELECT r.device_no, r.ts, r.digest, r.packed FROM hop LEFT JOIN device_latest AS l ON l.device_no = hop.device_no"""  # noqa: S608 - put together from constants of this module
_ROWS_OF_DEVICE = f"SELECT * FROM readings AS r WHERE {_NEWER} ORDER BY r.ts, r.digest LIMIT :at_limit"  # noqa: S608 - constants
_PAGE_PARAMETERS = ("at_first", "at_device", "at_ts", "at_digest", "at_limit")
LIST_NEWER_THAN_LATEST = {
    # SQLite keeps the order of a CROSS JOIN, and the device numbers ascend: the rows are sorted, so a page reads no more than a
    # page.
    SQLITE: text_with_bigints(
        f"{_WITH_LATEST} CROSS JOIN readings AS r WHERE {_NEWER} AND {_NOT_DELETED} LIMIT :at_limit", *_PAGE_PARAMETERS
    ),
    # LIMIT in the subquery: the planner must look up each device's rows by their key, and not read the whole table.
    POSTGRES: text_with_bigints(
        f"{_WITH_LATEST} CROSS JOIN LATERAL ({_ROWS_OF_DEVICE}) AS r WHERE {_NOT_DELETED} "
        "ORDER BY r.device_no, r.ts, r.digest LIMIT :at_limit",
        *_PAGE_PARAMETERS,
    ),
}
LIST_DEVICES_WITH_ANY_OLDER = devices_with_older("readings", "ts")
# Ranges that have expired are dropped as a whole (range_partitions.py); only what is older than all ranges is searched.
LIST_DEVICES_WITH_OLDER = {SQLITE: LIST_DEVICES_WITH_ANY_OLDER, POSTGRES: devices_with_older("readings_before", "ts")}
# The range of times bounds what is read, and on PostgreSQL the days that are visited.
_DELETE_MESSAGES = (
    "DELETE FROM readings WHERE device_no = :at_device AND ts >= :at_since AND ts <= :at_until AND (ts, digest) IN ({among})"
)
DELETE_MESSAGES = {
    dialect: text_with_bigints(_DELETE_MESSAGES.format(among=among), "at_device", "at_since", "at_until")
    for dialect, among in {
        SQLITE: "SELECT value ->> 0, value ->> 1 FROM json_each(:at_keys)",
        POSTGRES: "SELECT CAST(value ->> 0 AS bigint), CAST(value ->> 1 AS bigint) "
        "FROM json_array_elements(CAST(:at_keys AS json))",
    }.items()
}
# A range of keys, because the database would look up each key of a list separately. It begins where the last batch ended: on
# PostgreSQL deleted rows stay in the index for a while, and a search from the first one passes over all of them.
_AFTER_TS = bindparam("at_after_ts", type_=r.ts.type)
_AFTER = tuple_(_AFTER_TS, bindparam("at_after_digest", type_=r.digest.type))
LAST_OF_BATCH = (
    select(r.ts, r.digest)
    .where(r.device_no == bindparam("at_device"), r.ts >= _AFTER_TS, _KEY > _AFTER, r.ts < bindparam("at_before"))
    .order_by(r.ts, r.digest)
    .limit(1)
    .offset(bindparam("at_offset"))
)
DELETE_UP_TO = text_with_bigints(
    "DELETE FROM readings WHERE device_no = :at_device "
    "AND ts >= :at_after_ts AND (ts, digest) > (:at_after_ts, :at_after_digest) "
    "AND ts <= :at_ts AND (ts, digest) <= (:at_ts, :at_digest) RETURNING ts",
    "at_device",
    "at_after_ts",
    "at_after_digest",
    "at_ts",
    "at_digest",
)
_BELOW_ANY_DIGEST = -(2**31) - 1
_BEFORE_ALL: MessageKey = (0, _BELOW_ANY_DIGEST)


class SqlReadingRepository(SqlRepository):
    async def add_many(self, rows: Sequence[PackedRow]) -> None:
        await self._session.bulk_write(ADD_MANY, rows)

    async def list_existing(self, keys: Sequence[RowKey]) -> Set[RowKey]:
        rows = await self._session.read(LIST_EXISTING[self._session.dialect], at_keys=to_json(list(keys)))
        return {(row[0], row[1], row[2]) for row in rows}

    async def list_between(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        statement = LIST_NEWEST_FIRST if newest_first else LIST_OLDEST_FIRST
        rows = await self._session.read(statement, at_device=device_no, at_since=since_ms, at_until=until_ms, at_limit=limit)
        return [(row[0], row[1]) for row in rows]

    async def list_page(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[tuple[int, int, bytes]]:
        statements, end = (
            (PAGE_NEWEST_FIRST, {"at_since": since_ms}) if newest_first else (PAGE_OLDEST_FIRST, {"at_until": until_ms})
        )
        ts, digest = after or (until_ms if newest_first else since_ms, _BELOW_ANY_DIGEST)
        place = {"at_device": device_no, "at_ts": ts, "at_digest": digest}
        rows = await self._session.read(statements[self._session.dialect], **place, **end, at_limit=limit)
        return [(row[0], row[1], row[2]) for row in rows]

    async def assign_metric_numbers(self, names: Sequence[str]) -> Sequence[tuple[int, str]]:
        dialect, among = self._session.dialect, to_json(list(dict.fromkeys(names)))
        if dialect == POSTGRES:
            known = await self._session.read(FIND_METRIC_NUMBERS, at_listed=among)
            if len(known) == len(set(names)):
                return [(row[0], row[1]) for row in known]
            await self._session.write(LOCK_METRIC_NAMES)
        await self._session.write(ADD_METRIC_NAMES[dialect], at_listed=among)
        return [(row[0], row[1]) for row in await self._session.read(FIND_METRIC_NUMBERS, at_listed=among)]

    async def list_metric_names(self) -> Sequence[tuple[int, str]]:
        return [(row[0], row[1]) for row in await self._session.read(LIST_METRIC_NAMES)]

    async def upsert_device_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None:
        reported = {"reported": True}
        rows = [{"device_no": device, "metric_no": metric, "unit": unit, **reported} for device, metric, unit in metrics]
        await self._session.execute_many(UPSERT_METRICS, rows)

    async def declare_device_metrics(self, device_no: int, metrics: Collection[int]) -> None:
        for metric in sorted(metrics):
            await self._session.write(DECLARE_METRICS, device_no=device_no, metric_no=metric, unit=None, reported=False)

    async def list_reported_metrics(self, device_no: int) -> Collection[str]:
        return {row[0] for row in await self._session.read(LIST_REPORTED, at_device=device_no)}

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST_METRICS, at_device=device_no)]

    async def list_metrics_of_devices(self, device_nos: Collection[int]) -> Mapping[tuple[int, int], tuple[str, str | None]]:
        rows = await self._session.read(LIST_METRICS_OF_DEVICES, at_listed=to_json(sorted(device_nos)))
        return {(row[0], row[1]): (row[2], row[3]) for row in rows}

    async def upsert_checkpoints(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        rows = [{"device_no": device, "ts": at_ms, "packed": packed} for device, at_ms, packed in checkpoints]
        await self._session.execute_many(UPSERT_LATEST, rows)

    async def list_checkpoints(self) -> Sequence[tuple[int, int, bytes]]:
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST_LATEST)]

    async def find_checkpoint(self, device_no: int) -> tuple[int, bytes] | None:
        rows = await self._session.read(FIND_LATEST, at_device=device_no)
        return (rows[0][0], rows[0][1]) if rows else None

    async def list_newer_than_checkpoint(self, limit: int, after: tuple[int, int, int] | None) -> Sequence[PackedRow]:
        device, at_ms, digest = after or (0, -1, 0)
        rows = await self._session.read(
            LIST_NEWER_THAN_LATEST[self._session.dialect],
            at_first=device,
            at_device=device,
            at_ts=at_ms,
            at_digest=digest,
            at_limit=limit,
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    async def delete_batch(self, device_no: int, limit: int, before_ms: int = MAX_TIME_MS) -> int:
        return (await self._delete_after(_BEFORE_ALL, device_no, limit, before_ms))[0]

    async def delete_next_batch(self, device_no: int, limit: int, after: MessageKey | None) -> tuple[int, MessageKey | None]:
        deleted, last = await self._delete_after(after or _BEFORE_ALL, device_no, limit, MAX_TIME_MS)
        return deleted, last or after

    async def _delete_after(self, after: MessageKey, device_no: int, limit: int, before_ms: int) -> tuple[int, MessageKey | None]:
        """How many, and the key of the last one if there were as many as `limit`."""
        begin = {"at_device": device_no, "at_after_ts": after[0], "at_after_digest": after[1]}
        found = await self._session.read(LAST_OF_BATCH, **begin, at_before=before_ms, at_offset=limit - 1)
        last = (found[0][0], found[0][1]) if found else None
        ts, digest = last or (before_ms, _BELOW_ANY_DIGEST)
        return await self._count_changed(DELETE_UP_TO, **begin, at_ts=ts, at_digest=digest), last

    async def delete_messages(self, device_no: int, keys: Sequence[MessageKey]) -> None:
        if keys:
            await self._session.write(
                DELETE_MESSAGES[self._session.dialect],
                at_device=device_no,
                at_since=keys[0][0],
                at_until=keys[-1][0],
                at_keys=to_json(list(keys)),
            )

    async def list_devices_with_rows_before(
        self, before_ms: int, first_device: int, limit: int, *, in_ranges: bool = False
    ) -> Sequence[int]:
        statement = LIST_DEVICES_WITH_ANY_OLDER if in_ranges else LIST_DEVICES_WITH_OLDER[self._session.dialect]
        rows = await self._session.read(statement, at_first=first_device, at_before=before_ms, at_limit=limit)
        return [row[0] for row in rows]


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
