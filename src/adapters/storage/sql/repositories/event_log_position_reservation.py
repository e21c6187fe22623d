"""Writer numbers of the event log on PostgreSQL: a transaction that writes events holds one of them until it ends.

The row of a writer number in `event_writers` is its lock, so the transactions of one number commit one after the other, and those
of different numbers side by side. Its position is the last one committed under this number: the rows of one snapshot are a cursor
of everything that the snapshot contains (see `domain.events.cursors`). The lowest free number is taken, so few numbers
are in use at a time. PostgreSQL frees the number of a transaction that ends, however it ends; no reader ever waits for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ARRAY, BigInteger, BindParameter, Integer, Text, TextClause, and_, bindparam, func, select, text
from sqlalchemy.sql.elements import Grouping

from adapters.storage.sql.sql_session_port import Row, SqlSession
from adapters.storage.sql.tables import event_writers, events
from domain.events.cursors import MAX_WRITERS, EventLogCursor
from domain.events.hash_chain import EventChainHead
from domain.kernel.ids import AccountId

LAST_GIVEN = "(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM events_position_seq)"
"""The newest position that was drawn."""


_ACCOUNTS: BindParameter[Sequence[str]] = bindparam("at_accounts", type_=ARRAY(Text()))
_HEADS = """
    SELECT json_agg(json_build_array(account_id, sequence, hash, position))
    FROM event_totals WHERE writer = {writer} AND account_id = ANY(:at_accounts)
    """


def _reserve(slot: str) -> TextClause:
    return text(f"""
        WITH slot AS MATERIALIZED ({slot}),
        given AS MATERIALIZED (
            SELECT slot.writer, nextval('events_position_seq') AS position FROM slot, generate_series(1, :at_count)),
        noted AS (
            UPDATE event_writers SET position = (SELECT max(position) FROM given) WHERE writer = (SELECT writer FROM slot))
        SELECT slot.writer, (SELECT array_agg(position ORDER BY position) FROM given) AS positions,
            slot.position = (SELECT position FROM event_writers w WHERE w.writer = slot.writer) AS is_current,
            ({_HEADS.format(writer="slot.writer")}) AS heads
        FROM slot
        """).bindparams(bindparam("at_count", type_=Integer()), _ACCOUNTS)  # noqa: S608 - of constants


RESERVE_POSITIONS = _reserve("SELECT writer, position FROM event_writers ORDER BY writer LIMIT 1 FOR UPDATE SKIP LOCKED")
"""Positions are drawn after the writer number is locked, so they ascend in the order of its commits. The statement reads the
heads of the chains in the snapshot that it began with; the third column says whether that has the number's last commit."""
RESERVE_WHEN_ALL_ARE_TAKEN = _reserve(
    f"SELECT writer, position FROM event_writers WHERE writer = pg_backend_pid() % {MAX_WRITERS} FOR UPDATE"  # noqa: S608
)
"""Waits for the transaction that holds the number."""
WRITER_POSITIONS = select(event_writers.c.writer, event_writers.c.position).order_by(event_writers.c.writer)
ADVANCE_IDLE = text(f"""
    UPDATE event_writers SET position = greatest(position, {LAST_GIVEN})
    WHERE writer IN (SELECT writer FROM event_writers ORDER BY writer FOR UPDATE SKIP LOCKED)
    """)  # noqa: S608 - of constants
"""A number that is free has committed all that it was given; its next transaction gets higher positions."""

HEADS_OF_WRITER = text(_HEADS.format(writer=":at_writer")).bindparams(bindparam("at_writer", type_=BigInteger()), _ACCOUNTS)
"""In a snapshot of its own, when another transaction of the number committed after the reservation began."""
NEXT_ON_SQLITE = text("""
    SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'events'), asked.value, t.sequence, t.hash, t.position
    FROM json_each(:at_accounts) AS asked LEFT JOIN event_totals t ON t.account_id = asked.value AND t.writer = 0
    """)
"""The last position given, and the heads of the chains."""

_SEEN: BindParameter[Sequence[int | None]] = bindparam("at_seen", type_=ARRAY(BigInteger(), zero_indexes=True))
NOT_COVERED = and_(
    events.c.position > bindparam("at_lowest"),
    events.c.position > func.coalesce(Grouping(_SEEN)[events.c.writer], bindparam("at_base", type_=BigInteger())),
)
"""The first condition limits the scan of the index, the second one decides."""
END_OF_TOTAL_ORDER = select(func.max(events.c.position))
"""On SQLite, whose transactions commit in the order of their positions."""


def cursor_parameters(after: EventLogCursor) -> dict[str, object]:
    """Of `NOT_COVERED`."""
    positions = dict(after.entries)
    seen = [positions.get(writer) for writer in range(max(positions, default=-1) + 1)]
    return {"at_lowest": after.lowest, "at_seen": seen, "at_base": after.base}


@dataclass(frozen=True, slots=True)
class EventWriterReservation:
    """A writer number, held until the transaction ends; ascending positions under it; and the heads of its chains."""

    writer: int
    positions: Sequence[int]
    heads: Mapping[AccountId, EventChainHead]


async def reserve_positions(session: SqlSession, count: int, accounts: Collection[AccountId] = ()) -> EventWriterReservation:
    """Of `count` positions for events of these accounts. For PostgreSQL."""
    names = sorted(accounts)
    rows = await session.write(RESERVE_POSITIONS, at_count=count, at_accounts=names)
    if not rows:
        rows = await session.write(RESERVE_WHEN_ALL_ARE_TAKEN, at_count=count, at_accounts=names)
    [(writer, positions, is_current, found)] = rows
    if not is_current:
        found = (await session.read(HEADS_OF_WRITER, at_writer=writer, at_accounts=names))[0][0]
    return EventWriterReservation(writer, positions, _heads_by_account(found or ()))


def next_on_sqlite(rows: Sequence[Row], count: int) -> EventWriterReservation:
    """From the rows of `NEXT_ON_SQLITE`. SQLite has one writer, whose positions have no gaps."""
    first = (rows[0][0] or 0) + 1
    return EventWriterReservation(0, range(first, first + count), _heads_by_account(row[1:] for row in rows))


def _heads_by_account(rows: Iterable[Row]) -> dict[AccountId, EventChainHead]:
    """Accounts whose chain has no record yet are left out."""
    return {account: EventChainHead(sequence, hashed, position) for account, sequence, hashed, position in rows if sequence}


async def end_of_log(session: SqlSession) -> EventLogCursor:
    return EventLogCursor.from_all_writers({row[0]: row[1] for row in await session.read(WRITER_POSITIONS)})
