"""The event log, and its counters per account and per (kind, device): counting millions of rows would be too slow.

Each writer number has counters of its own, so that transactions which add events to one account do not wait for each other.

Writer numbers of the event log on PostgreSQL: a transaction that writes events holds one of them until it ends.

The row of a writer number in `event_writers` is its lock, so the transactions of one number commit one after the other, and those
of different numbers side by side. Its position is the last one committed under this number: the rows of one snapshot are a cursor
of everything that the snapshot contains (see `domain.events.cursors`). The lowest free number is taken, so few numbers
are in use at a time. PostgreSQL frees the number of a transaction that ends, however it ends; no reader ever waits for one.

Transactions with events of one device commit one after the other, under an advisory lock that is taken before positions are
drawn: whoever follows the log gets the events of a device in the order of their positions.

Deletes old events, whole sealed parts of the log from its beginning, so that what is left of each chain can be verified.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    Text,
    TextClause,
    and_,
    bindparam,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.sql.elements import Grouping

from adapters.storage.sql.mapping import JSON, RowMapper, SqlRepository, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE, Row, SqlSession
from adapters.storage.sql.statements import BulkStatement, bulk_insert, escape_like, without_none
from adapters.storage.sql.tables import audit_rounds, audit_seals, event_counts, event_totals, event_writers, events
from domain.events.cursors import MAX_WRITERS, EventLogCursor
from domain.events.hash_chain import ChainHasher, EventChainHead, chain_events, heads_after
from domain.events.model import NO_SEARCH, Event, EventSearch, with_position
from domain.kernel.folding import fold
from domain.kernel.ids import AccountId, DeviceId, EventId

LAST_GIVEN = "(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM events_position_seq)"
"""The newest position that was drawn."""


_ACCOUNTS: BindParameter[Sequence[str]] = bindparam("at_accounts", type_=ARRAY(Text()))
_HEADS = """
    SELECT json_agg(json_build_array(account_id, sequence, hash, position))
    FROM event_totals WHERE writer = {writer} AND account_id = ANY(:at_accounts)
    """


DEVICE_LOCKS = 1_024
"""Devices share so many locks: a batch of thousands of devices must not fill PostgreSQL's table of locks."""
_DEVICE_LOCK_CLASS = 549_202_533
"""With two integers, so these locks are none of those with one key (the leader's, a process's)."""
_LOCKS: BindParameter[Sequence[int]] = bindparam("at_locks", type_=ARRAY(Integer()))


def _reserve(slot: str) -> TextClause:
    return text(f"""
        WITH held AS MATERIALIZED (
            SELECT count(pg_advisory_xact_lock({_DEVICE_LOCK_CLASS}, device)) FROM unnest(:at_locks) AS device),
        slot AS MATERIALIZED ({slot}),
        given AS MATERIALIZED (
            SELECT slot.writer, nextval('events_position_seq') AS position FROM slot, generate_series(1, :at_count)),
        noted AS (
            UPDATE event_writers SET position = (SELECT max(position) FROM given) WHERE writer = (SELECT writer FROM slot))
        SELECT slot.writer, (SELECT array_agg(position ORDER BY position) FROM given) AS positions,
            slot.position = (SELECT position FROM event_writers w WHERE w.writer = slot.writer) AS is_current,
            ({_HEADS.format(writer="slot.writer")}) AS heads
        FROM slot
        """).bindparams(bindparam("at_count", type_=Integer()), _ACCOUNTS, _LOCKS)  # noqa: S608 - of constants


RESERVE_POSITIONS = _reserve(
    "SELECT writer, position FROM held, event_writers ORDER BY writer LIMIT 1 FOR UPDATE OF event_writers SKIP LOCKED"
)
"""The devices are locked first, in the order of the array, which is sorted: two transactions cannot deadlock. Positions are drawn
after the writer number is locked too, so they ascend in the order of the commits of each device and of the number. The
statement reads the heads of the chains in the snapshot that it began with; the third column says whether that has the number's
last commit."""
RESERVE_WHEN_ALL_ARE_TAKEN = _reserve(
    "SELECT writer, position FROM held, event_writers "  # noqa: S608 - of constants
    f"WHERE writer = pg_backend_pid() % {MAX_WRITERS} FOR UPDATE OF event_writers"
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


async def reserve_positions(
    session: SqlSession, count: int, accounts: Collection[AccountId] = (), devices: Collection[DeviceId] = ()
) -> EventWriterReservation:
    """Of `count` positions for events of these accounts and devices. Waits while another transaction with events of one of the
    devices is open. For PostgreSQL."""
    locks = sorted({zlib.crc32(device.encode()) % DEVICE_LOCKS for device in devices})
    wanted = {"at_count": count, "at_accounts": sorted(accounts), "at_locks": locks}
    rows = await session.write(RESERVE_POSITIONS, **wanted)
    if not rows:
        rows = await session.write(RESERVE_WHEN_ALL_ARE_TAKEN, **wanted)
    [(writer, positions, is_current, found)] = rows
    if not is_current:
        found = (await session.read(HEADS_OF_WRITER, at_writer=writer, at_accounts=sorted(accounts)))[0][0]
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


s = audit_seals.c
e = events.c
_BATCH_LIMIT = bindparam("at_limit", type_=Integer())
_BEFORE: BindParameter[int] = bindparam("at_before")
_newer = audit_seals.alias("newer")
NEWEST_ROUND = select(audit_rounds).where(audit_rounds.c.sealed_ms < _BEFORE).order_by(audit_rounds.c.sealed_ms.desc()).limit(1)
DELETE_ROUNDS = delete(audit_rounds).where(audit_rounds.c.sealed_ms <= _BEFORE)
MARK_PURGED = update(audit_seals).where(s.sealed_ms <= _BEFORE, ~s.purged).values(purged=True)
"""Before the first record is deleted, so that an export begins behind what is being deleted."""
DELETE_SEALS = delete(audit_seals).where(
    s.sealed_ms <= _BEFORE,
    s.purged,
    select(literal(1)).where(_newer.c.account_id == s.account_id, _newer.c.number > s.number, _newer.c.purged).exists(),
)
"""All but the anchor of each account."""
_COVERED = {SQLITE: e.position <= bindparam("at_upto"), POSTGRES: and_(e.position <= bindparam("at_upto"), ~NOT_COVERED)}


def _delete_covered(dialect: str) -> Any:
    chosen = select(e.position).where(_COVERED[dialect]).order_by(e.position).limit(_BATCH_LIMIT)
    return delete(events).where(e.position.in_(chosen)).returning(e.position, e.account_id, e.kind, e.device_id, e.writer)


DELETE_COVERED = {dialect: _delete_covered(dialect) for dialect in (SQLITE, POSTGRES)}
"""In the order of the positions, so that each chain loses records at its beginning only."""


async def delete_sealed_events(session: SqlSession, sealed_before_ms: int, limit: int) -> Sequence[Row]:
    """Delete at most `limit` of the oldest events that were sealed before this time, and the seals that only they needed. The
    rows are position, account, kind, device and writer."""
    found = await session.read(NEWEST_ROUND, at_before=sealed_before_ms)
    if not found:
        return []
    sealed_ms, log = found[0][0], _decode_cursor(found[0][1])
    await session.write(MARK_PURGED, at_before=sealed_ms)
    await session.write(DELETE_SEALS, at_before=sealed_ms)
    covered = cursor_parameters(log) if session.dialect == POSTGRES else {}
    rows = await session.write(DELETE_COVERED[session.dialect], at_upto=log.highest, at_limit=limit, **covered)
    if len(rows) < limit:
        await session.write(DELETE_ROUNDS, at_before=sealed_ms)
    return rows


def encode_log_cursor(log: EventLogCursor) -> str:
    return json.dumps([log.base, log.entries])


def _decode_cursor(text: str) -> EventLogCursor:
    base, entries = json.loads(text)
    return EventLogCursor.from_positions(dict(entries), base)


EVENT = RowMapper(events, Event, {"payload": JSON})

AppendWrites = list[tuple[BulkStatement, Sequence[Sequence[Any]]]]
CounterKey = tuple[AccountId, str, str, int]
"""Account, kind, device id or "", and writer."""

_ACCOUNT = e.account_id == bindparam("at_account")
_ACCOUNT_UNINDEXED = func.coalesce(e.account_id, literal_column("''")) == bindparam("at_account")
"""The condition written so that no index matches it: SQLite would prefer the account's index to the device's, and read a whole
kind."""
_LIMIT: BindParameter[int] = bindparam("at_limit")

ADD = bulk_insert(events, (*EVENT.names, "public", "folded", "sequence", "hash"), json=("payload",))
"""Properties are stored as columns too: feed queries filter by `is_public`, searches by `folded_text`."""
_insert_values = attrgetter(*EVENT.names, "is_public", "folded_text")

ADD_TO_TOTALS = bulk_insert(event_totals, ("account_id", "writer", "total"), adding="total")
ADD_TO_COUNTS = bulk_insert(event_counts, ("account_id", "kind", "device_id", "writer", "total"), adding="total")
"""Add to the counter, or insert it."""
ADVANCE_CHAINS = bulk_insert(
    event_totals,
    ("account_id", "writer", "total", "sequence", "position", "hash"),
    adding="total",
    replacing=("sequence", "position", "hash"),
)
"""The same with the new head of the chain."""
_COUNTER_PARAMETERS = ("at_account", "at_kind", "at_device", "at_writer")
DELETE_ZERO_COUNT = delete(event_counts).where(
    event_counts.c.account_id == bindparam("at_account"),
    event_counts.c.kind == bindparam("at_kind"),
    event_counts.c.device_id == bindparam("at_device"),
    event_counts.c.writer == bindparam("at_writer"),
    event_counts.c.total == 0,
)
"""Counters of deleted devices."""
GET_TOTAL = select(func.coalesce(func.sum(event_totals.c.total), 0)).where(event_totals.c.account_id == bindparam("at_account"))
_UNREAD: dict[str, ColumnElement[bool]] = {POSTGRES: NOT_COVERED, SQLITE: e.position > bindparam("at_after")}
LIST_PUBLIC_AFTER = {
    dialect: EVENT.select().where(_ACCOUNT, e.public, unread).order_by(e.position).limit(_LIMIT)
    for dialect, unread in _UNREAD.items()
}
LIST_AFTER = {dialect: EVENT.select().where(unread).order_by(e.position).limit(_LIMIT) for dialect, unread in _UNREAD.items()}
LIST_KINDS_AFTER = {
    dialect: select(e.kind).where(unread).order_by(e.position).limit(_LIMIT) for dialect, unread in _UNREAD.items()
}
GET = EVENT.select().where(e.event_id == bindparam("at_id"), _ACCOUNT)
OLDEST_POSITION = select(func.min(e.position))
_DEVICE_LOG = EVENT.select().where(e.device_id == bindparam("at_device"))
_NEWEST_FIRST = (e.at_ms.desc(), e.position.desc())
DEVICE_LOG = _DEVICE_LOG.order_by(*_NEWEST_FIRST).limit(_LIMIT)
_OLDER = and_(
    e.at_ms <= bindparam("at_before"), or_(e.at_ms < bindparam("at_before"), e.position < bindparam("at_before_position"))
)
DEVICE_LOG_BEFORE = _DEVICE_LOG.where(_OLDER).order_by(*_NEWEST_FIRST).limit(_LIMIT)
_SEARCHED = {
    "at_since": e.at_ms >= bindparam("at_since"),
    "at_until": e.at_ms < bindparam("at_until"),
    "at_source": e.source == bindparam("at_source"),
    "at_text": func.coalesce(e.folded, func.lower(e.description + " " + func.coalesce(e.device_name, ""))).like(
        bindparam("at_text"), escape="\\"
    ),
}


@cache
def page_statement(before: bool, kind: bool, device: bool, searched: frozenset[str] = frozenset()) -> Select[Any]:
    """One cached statement per combination of filters."""
    statement = EVENT.select().where(_ACCOUNT_UNINDEXED if kind and device else _ACCOUNT)
    if before:
        statement = statement.where(e.position < bindparam("at_before"))
    if kind:
        statement = statement.where(e.kind == bindparam("at_kind"))
    if device:
        statement = statement.where(e.device_id == bindparam("at_device"))
    return statement.where(*(_SEARCHED[name] for name in sorted(searched))).order_by(e.position.desc()).limit(_LIMIT)


def _search_parameters(search: EventSearch) -> dict[str, object]:
    text = None if search.text is None else f"%{escape_like(fold(search.text))}%"
    return without_none(at_since=search.since_ms, at_until=search.until_ms, at_source=search.source, at_text=text)


@cache
def count_statement(kind: bool, device: bool) -> Select[Any]:
    """Sums the counters; reads at most one row per device or kind, and writer."""
    c = event_counts.c
    statement = select(func.coalesce(func.sum(c.total), 0)).where(c.account_id == bindparam("at_account"))
    if kind:
        statement = statement.where(c.kind == bindparam("at_kind"))
    if device:
        statement = statement.where(c.device_id == bindparam("at_device"))
    return statement


class SqlEventRepository(SqlRepository):
    async def append_many(self, events: Sequence[Event], hasher: ChainHasher = chain_events) -> Sequence[Event]:
        if not events:
            return []
        accounts = {event.account_id for event in events}
        if self._session.dialect == POSTGRES:
            devices = {event.device_id for event in events if event.device_id is not None}
            reserved = await reserve_positions(self._session, len(events), accounts, devices)
            numbered, writes = _plan_append(events, reserved, hasher)
            await self._session.bulk_write_all(writes)
            return numbered
        stored: list[Event] = []

        def plan(rows: Sequence[Row]) -> AppendWrites:
            numbered, writes = _plan_append(events, next_on_sqlite(rows, len(events)), hasher)
            stored.extend(numbered)
            return writes

        await self._session.read_then_write(NEXT_ON_SQLITE, plan, at_accounts=to_json(sorted(accounts)))
        return stored

    async def get(self, account_id: AccountId, event_id: EventId) -> Event | None:
        return await self._first(EVENT, GET, at_account=account_id, at_id=event_id)

    async def page(
        self,
        account_id: AccountId,
        *,
        limit: int,
        before: int | None = None,
        kind: str | None = None,
        device_id: DeviceId | None = None,
        search: EventSearch = NO_SEARCH,
    ) -> Sequence[Event]:
        searched = _search_parameters(search)
        statement = page_statement(before is not None, kind is not None, device_id is not None, frozenset(searched))
        params = without_none(at_before=before, at_kind=kind, at_device=device_id) | searched
        return await self._list(EVENT, statement, at_account=account_id, at_limit=limit, **params)

    async def list_public_after(self, account_id: AccountId, after: EventLogCursor, limit: int) -> Sequence[Event]:
        rows = await self._list_unread(LIST_PUBLIC_AFTER, after, at_account=account_id, at_limit=limit)
        return [EVENT.from_row(row) for row in rows]

    async def list_after(self, after: EventLogCursor, limit: int) -> Sequence[Event]:
        return [EVENT.from_row(row) for row in await self._list_unread(LIST_AFTER, after, at_limit=limit)]

    async def list_kinds_after(self, after: EventLogCursor, limit: int) -> Sequence[str]:
        return [row[0] for row in await self._list_unread(LIST_KINDS_AFTER, after, at_limit=limit)]

    async def _list_unread(self, statement: Mapping[str, Select[Any]], after: EventLogCursor, **params: object) -> Sequence[Row]:
        dialect = self._session.dialect
        seen = cursor_parameters(after) if dialect == POSTGRES else {"at_after": after.position_of(0)}
        return await self._session.read(statement[dialect], **params, **seen)

    async def end(self) -> EventLogCursor:
        if self._session.dialect == POSTGRES:
            return await end_of_log(self._session)
        return EventLogCursor(await self._number_or_none(END_OF_TOTAL_ORDER) or 0)

    async def advance_idle_writers(self) -> None:
        if self._session.dialect == POSTGRES:
            await self._session.write(ADVANCE_IDLE)

    async def count(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        if kind is None and device_id is None:
            return await self._number(GET_TOTAL, at_account=account_id)
        params = without_none(at_kind=kind, at_device=device_id)
        statement = count_statement(kind is not None, device_id is not None)
        return await self._number(statement, at_account=account_id, **params)

    async def oldest_position(self) -> int:
        return await self._number_or_none(OLDEST_POSITION) or 0

    async def list_by_device(self, device_id: DeviceId, *, limit: int, before: tuple[int, int] | None) -> Sequence[Event]:
        statement = DEVICE_LOG if before is None else DEVICE_LOG_BEFORE
        mark = {} if before is None else {"at_before": before[0], "at_before_position": before[1]}
        return await self._list(EVENT, statement, at_device=device_id, at_limit=limit, **mark)

    async def delete_older_than(self, at_ms: int, limit: int) -> int:
        rows = await delete_sealed_events(self._session, at_ms, limit)
        gone = Counter((account_id, kind, device_id or "", writer) for _, account_id, kind, device_id, writer in rows)
        await self._adjust_counts({counted: -number for counted, number in gone.items()})
        await self._session.execute_many(
            DELETE_ZERO_COUNT, [dict(zip(_COUNTER_PARAMETERS, counted, strict=True)) for counted in sorted(gone)], defer=True
        )
        return len(rows)

    async def _adjust_counts(self, by: Mapping[CounterKey, int]) -> None:
        accounts: Counter[tuple[AccountId, int]] = Counter()
        for (account_id, _, _, writer), number in by.items():
            accounts[account_id, writer] += number
        await self._session.bulk_write(ADD_TO_TOTALS, [(*counted, number) for counted, number in sorted(accounts.items())])
        await self._session.bulk_write(ADD_TO_COUNTS, _count_rows(by))


def _plan_append(
    events: Sequence[Event], reserved: EventWriterReservation, hasher: ChainHasher
) -> tuple[list[Event], AppendWrites]:
    """The events with their positions, and what to write. Counters are in the order of their keys, so that two transactions
    cannot deadlock."""
    writer = reserved.writer
    numbered = [with_position(event, number, writer) for event, number in zip(events, reserved.positions, strict=True)]
    places = hasher(numbered, reserved.heads)
    added = Counter(event.account_id for event in events)
    chains = [
        (at, writer, added[at], head.sequence, head.position, head.hash)
        for at, head in sorted(heads_after(numbered, places).items())
    ]
    return numbered, [
        (ADD, [(*_insert_values(event), *place) for event, place in zip(numbered, places, strict=True)]),
        (ADVANCE_CHAINS, chains),
        (ADD_TO_COUNTS, _count_rows(Counter(map(_counter_key, numbered)))),
    ]


def _count_rows(by: Mapping[CounterKey, int]) -> list[tuple[object, ...]]:
    return [(*counted, number) for counted, number in sorted(by.items())]


def _counter_key(event: Event) -> CounterKey:
    return event.account_id, event.kind, event.device_id or "", event.writer
