"""Writer numbers of the event log on PostgreSQL: a transaction that writes events holds one of them until it ends.

The row of a writer number in `event_writers` is its lock, so the transactions of one number commit one after the other, and those
of different numbers side by side. Its position is the last one committed under this number: the rows of one snapshot are a cursor
of everything that the snapshot contains (see `domain.events.log_cursor`). The lowest free number is taken, so few numbers are in
use at a time. PostgreSQL frees the number of a transaction that ends, however it ends; no reader ever waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, BindParameter, Integer, TextClause, and_, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.elements import Grouping

from adapters.storage.sql.session import DbSession
from adapters.storage.sql.tables import event_writers, events
from domain.events.log_cursor import MAX_WRITERS, LogCursor

LAST_GIVEN = "(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM events_position_seq)"
"""The newest position that was drawn."""


def _reserve(slot: str) -> TextClause:
    return text(f"""
        WITH slot AS MATERIALIZED ({slot}),
        given AS MATERIALIZED (
            SELECT slot.writer, nextval('events_position_seq') AS position FROM slot, generate_series(1, :at_count)),
        noted AS (
            UPDATE event_writers SET position = (SELECT max(position) FROM given) WHERE writer = (SELECT writer FROM slot))
        SELECT writer, position FROM given
        """).bindparams(bindparam("at_count", type_=Integer()))  # noqa: S608 - of constants


RESERVE_POSITIONS = _reserve("SELECT writer FROM event_writers ORDER BY writer LIMIT 1 FOR UPDATE SKIP LOCKED")
"""Positions are drawn after the writer number is locked, so they ascend in the order of its commits."""
RESERVE_WHEN_ALL_ARE_TAKEN = _reserve(
    f"SELECT writer FROM event_writers WHERE writer = pg_backend_pid() % {MAX_WRITERS} FOR UPDATE"  # noqa: S608 - a constant
)
"""Waits for the transaction that holds the number."""
WRITER_POSITIONS = select(event_writers.c.writer, event_writers.c.position).order_by(event_writers.c.writer)
ADVANCE_IDLE = text(f"""
    UPDATE event_writers SET position = greatest(position, {LAST_GIVEN})
    WHERE writer IN (SELECT writer FROM event_writers ORDER BY writer FOR UPDATE SKIP LOCKED)
    """)  # noqa: S608 - of constants
"""A number that is free has committed all that it was given; its next transaction gets higher positions."""

_SEEN: BindParameter[Sequence[int | None]] = bindparam("at_seen", type_=ARRAY(BigInteger(), zero_indexes=True))
NOT_COVERED = and_(
    events.c.position > bindparam("at_lowest"),
    events.c.position > func.coalesce(Grouping(_SEEN)[events.c.writer], bindparam("at_base", type_=BigInteger())),
)
"""The first condition limits the scan of the index, the second one decides."""
END_OF_TOTAL_ORDER = select(func.max(events.c.position))
"""On SQLite, whose transactions commit in the order of their positions."""


def cursor_parameters(after: LogCursor) -> dict[str, object]:
    """Of `NOT_COVERED`."""
    positions = dict(after.entries)
    seen = [positions.get(writer) for writer in range(max(positions, default=-1) + 1)]
    return {"at_lowest": after.lowest, "at_seen": seen, "at_base": after.base}


async def reserve_positions(session: DbSession, count: int) -> tuple[int, list[int]]:
    """A writer number, held until the transaction ends, and `count` ascending positions under it."""
    rows: Sequence[Sequence[int]] = await session.write(RESERVE_POSITIONS, at_count=count)
    if not rows:
        rows = await session.write(RESERVE_WHEN_ALL_ARE_TAKEN, at_count=count)
    return rows[0][0], sorted(row[1] for row in rows)


async def end_of_log(session: DbSession) -> LogCursor:
    return LogCursor.from_all_writers({row[0]: row[1] for row in await session.read(WRITER_POSITIONS)})
