"""Roll-ups per (device, hour). They are small compared with the readings.

Due marks: the hours of a device that have readings which their roll-up does not contain yet.

Readings and roll-ups in partitions by time (decision 0024). PostgreSQL only: SQLite keeps one table each.

The partitions of a table leave no gap: `_before` takes what is older than the oldest range, `_after` what is newer than the
newest. So every row has a place at any time, whether or not its range was made ahead. Every change is one transaction and waits
only briefly for its lock, because it holds up those who write: a later round tries again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import bindparam, delete, func, literal_column, select, text

from adapters.storage.sql.mapping import SqlRepository, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE
from adapters.storage.sql.statements import devices_with_older, greatest, insert, upsert
from adapters.storage.sql.tables import rollups, rollups_due
from domain.kernel.clock import DAY_MS, HOUR_MS
from domain.telemetry.ports import DueRollup

d = rollups_due.c
END_OF_TIME_HOUR = 2**40

_mark = insert(rollups_due)
MARK_DUE = _mark.on_conflict_do_update(
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
DELETE_DUE_BATCH = (
    delete(rollups_due).where(d.device_no == bindparam("at_device"), d.hour <= bindparam("at_hour")).returning(d.hour)
)
LAST_DUE_OF_BATCH = (
    select(d.hour).where(d.device_no == bindparam("at_device")).order_by(d.hour).limit(1).offset(bindparam("at_offset"))
)


class SqlDueRollupRepository(SqlRepository):
    async def mark(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        rows = [{"device_no": device_no, "hour": hour, "marked_ms": at_ms} for device_no, hour in hours]
        await self._session.execute_many(MARK_DUE, rows)

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
        last = await self._session.read(LAST_DUE_OF_BATCH, at_device=device_no, at_offset=limit - 1)
        return await self._count_changed(DELETE_DUE_BATCH, at_device=device_no, at_hour=last[0][0] if last else END_OF_TIME_HOUR)


u = rollups.c

GET = {
    dialect: text(
        f"SELECT u.device_no, u.hour, u.packed FROM ({among}) AS l "  # noqa: S608 - constants
        "CROSS JOIN rollups AS u WHERE u.device_no = l.device_no AND u.hour = l.hour"
    )
    for dialect, among in JSON_KEYS.items()
}
UPSERT = upsert(rollups, "packed")
_LIST_BETWEEN = (
    select(u.hour, u.packed)
    .where(u.device_no == bindparam("at_device"), u.hour >= bindparam("at_from"), u.hour < bindparam("at_until"))
    .limit(bindparam("at_limit"))
)
LIST_NEWEST_FIRST = _LIST_BETWEEN.order_by(u.hour.desc())
LIST_OLDEST_FIRST = _LIST_BETWEEN.order_by(u.hour)
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

    async def list_between(
        self, device_no: int, from_hour: int, until_hour: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        statement = LIST_NEWEST_FIRST if newest_first else LIST_OLDEST_FIRST
        rows = await self._session.read(statement, at_device=device_no, at_from=from_hour, at_until=until_hour, at_limit=limit)
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


RANGES_AHEAD = 3
"""So many ranges after the current one are made: the makers may be away for so long."""
MAX_NEW_RANGES = 400
"""At most so many ranges at a time; a longer gap becomes one wide range."""
_LOCK_KEY = 5492025330
_TRY_LOCK = text(f"SELECT pg_try_advisory_xact_lock({_LOCK_KEY})")
_LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '2s'")
_CHILDREN = text(
    "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), greatest(c.reltuples, 0)::bigint FROM pg_inherits AS i "
    "JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = CAST(:at_table AS regclass)"
)
_BOUNDS = re.compile(r"FROM \((MINVALUE|'?-?\d+'?)\) TO \((MAXVALUE|'?-?\d+'?)\)")


@dataclass(frozen=True, slots=True)
class TimePartitionedTable:
    name: str
    width: int
    """Of a range, in the unit of its column."""
    unit_ms: int

    def floor(self, value: int) -> int:
        return value // self.width * self.width

    def range_name(self, low: int) -> str:
        return f"{self.name}_{datetime.fromtimestamp(low * self.unit_ms / 1000, UTC):%Y_%m_%d}"


READINGS = TimePartitionedTable("readings", DAY_MS, 1)
ROLLUPS = TimePartitionedTable("rollups", 7 * DAY_MS // HOUR_MS, HOUR_MS)


@dataclass(frozen=True, slots=True)
class RangePartition:
    name: str
    low: int | None
    high: int | None
    rows: int
    """An estimate."""


class SqlRangePartitionRepository(SqlRepository):
    async def prepare(self, now_ms: int) -> None:
        if await self._may_change():
            for table in (READINGS, ROLLUPS):
                await self._extend(table, table.floor(now_ms // table.unit_ms) + (RANGES_AHEAD + 1) * table.width)

    async def divide_past(self, oldest_ms: int) -> None:
        if await self._may_change():
            for table in (READINGS, ROLLUPS):
                await self._divide_before(table, table.floor(oldest_ms // table.unit_ms))

    async def drop_before(self, readings_ms: int, rollups_hour: int, *, keep_readings: bool = False) -> int:
        if not await self._may_change():
            return 0
        if keep_readings:
            await self._drop_empty(READINGS, readings_ms)
            return await self._drop(ROLLUPS, rollups_hour)
        return await self._drop(READINGS, readings_ms) + await self._drop(ROLLUPS, rollups_hour)

    async def _may_change(self) -> bool:
        """One instance at a time; the others leave it to that one."""
        if self._session.dialect != POSTGRES:
            return False
        await self._session.write(_LOCK_TIMEOUT)
        [[locked]] = await self._session.write(_TRY_LOCK)
        return bool(locked)

    async def _ranges(self, table: TimePartitionedTable) -> Sequence[RangePartition]:
        """Oldest first."""
        rows = await self._session.read(_CHILDREN, at_table=table.name)
        found = [RangePartition(name, *_bounds(expression), rows) for name, expression, rows in rows]
        return sorted(found, key=lambda each: (each.low is not None, each.low))

    async def _extend(self, table: TimePartitionedTable, until: int) -> None:
        """Make the ranges up to `until`. Rows that came before their range was made move into it."""
        last = (await self._ranges(table))[-1]
        if last.low is None or last.low >= until:
            return
        name = table.name
        await self._run(f"ALTER TABLE {name} DETACH PARTITION {last.name}", f"ALTER TABLE {last.name} RENAME TO {name}_detached")
        await self._create(table, last.low, until)
        await self._run(
            f"CREATE TABLE {name}_after PARTITION OF {name} FOR VALUES FROM ({until}) TO (MAXVALUE)",
            f"INSERT INTO {name} SELECT * FROM {name}_detached",  # noqa: S608 - our names
            f"DROP TABLE {name}_detached",
        )

    async def _divide_before(self, table: TimePartitionedTable, since: int) -> None:
        """Divide the time before the oldest range, while nothing is stored there."""
        first = (await self._ranges(table))[0]
        if first.high is None or since >= first.high or await self._has_rows(first.name):
            return
        await self._run(f"DROP TABLE {first.name}")
        await self._create(table, since, first.high)
        await self._create_before(table, since)

    async def _create(self, table: TimePartitionedTable, low: int, high: int) -> None:
        starts = [low, *range(table.floor(max(low, high - (MAX_NEW_RANGES - 1) * table.width)) + table.width, high, table.width)]
        for start, end in zip(starts, [*starts[1:], high], strict=True):
            await self._run(
                f"CREATE TABLE {table.range_name(start)} PARTITION OF {table.name} FOR VALUES FROM ({start}) TO ({end})"
            )

    async def _create_before(self, table: TimePartitionedTable, high: int) -> None:
        await self._run(f"CREATE TABLE {table.name}_before PARTITION OF {table.name} FOR VALUES FROM (MINVALUE) TO ({high})")

    async def _drop(self, table: TimePartitionedTable, before: int) -> int:
        """Drop the ranges that end at `before` or earlier. Returns their rows, as the statistics have them."""
        expired = [each for each in await self._ranges(table) if each.high is not None and each.high <= before]
        if not expired or (len(expired) == 1 and not await self._has_rows(expired[0].name)):
            return 0  # only the range of what is older than all others, and it is empty
        for each in expired:
            await self._run(f"DROP TABLE {each.name}")
        await self._create_before(table, max(each.high or 0 for each in expired))
        return sum(each.rows for each in expired)

    async def _drop_empty(self, table: TimePartitionedTable, before: int) -> None:
        """Drop the ranges that end at `before` or earlier, up to the first that has rows. The lock keeps new rows out."""
        if await self._end_of_empty(table, before) is not None:
            await self._run(f"LOCK TABLE {table.name} IN ACCESS EXCLUSIVE MODE")
            end = await self._end_of_empty(table, before)
            if end is not None:
                await self._drop(table, end)

    async def _end_of_empty(self, table: TimePartitionedTable, before: int) -> int | None:
        """Where the ranges without rows end; None if there are none but that of what is older than all others."""
        end = None
        for each in await self._ranges(table):
            if each.high is None or each.high > before or await self._has_rows(each.name):
                break
            end = None if each.low is None else each.high
        return end

    async def _has_rows(self, name: str) -> bool:
        [[found]] = await self._session.read(text(f"SELECT EXISTS (SELECT FROM {name})"))  # noqa: S608 - a name from the catalog
        return bool(found)

    async def _run(self, *statements: str) -> None:
        for statement in statements:
            await self._session.write(text(statement))


def _bounds(expression: str) -> tuple[int | None, int | None]:
    found = _BOUNDS.search(expression)
    if found is None:
        raise ValueError(f"{expression} is no range of whole numbers.")
    low, high = (None if each in ("MINVALUE", "MAXVALUE") else int(each.strip("'")) for each in found.groups())
    return low, high
