"""The event log, and its counters per account and per (kind, device): counting millions of rows would be too slow.

Each writer number has counters of its own, so that transactions which add events to one account do not wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, and_, bindparam, delete, func, literal_column, or_, select

from adapters.storage.sql.bulk_statements import BulkStatement, bulk_insert
from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.event_log_position_reservation import (
    ADVANCE_IDLE,
    END_OF_TOTAL_ORDER,
    NEXT_ON_SQLITE,
    NOT_COVERED,
    EventWriterReservation,
    cursor_parameters,
    end_of_log,
    next_on_sqlite,
    reserve_positions,
)
from adapters.storage.sql.repositories.event_retention import delete_sealed_events
from adapters.storage.sql.row_mapper import JSON, RowMapper, to_json
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE, Row
from adapters.storage.sql.statement_builders import delete_batch, escape_like, without_none
from adapters.storage.sql.tables import event_counts, event_totals, events
from domain.events.cursors import EventLogCursor
from domain.events.hash_chain import ChainHasher, chain_events, heads_after
from domain.events.model import NO_SEARCH, Event, EventSearch, with_position
from domain.kernel.ids import AccountId, DeviceId

EVENT = RowMapper(events, Event, {"payload": JSON})

AppendWrites = list[tuple[BulkStatement, Sequence[Sequence[Any]]]]
CounterKey = tuple[AccountId, str, str, int]
"""Account, kind, device id or "", and writer."""

e = events.c
_ACCOUNT = e.account_id == bindparam("at_account")
_ACCOUNT_UNINDEXED = func.coalesce(e.account_id, literal_column("''")) == bindparam("at_account")
"""The condition written so that no index matches it: SQLite would prefer the account's index to the device's, and read a whole
kind."""
_LIMIT: BindParameter[int] = bindparam("at_limit")

ADD = bulk_insert(events, (*EVENT.names, "public", "sequence", "hash"), json=("payload",))
"""The property `is_public` is stored as a column, so that feed queries can filter by it."""
_insert_values = attrgetter(*EVENT.names, "is_public")

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
OLDEST_POSITION = select(func.min(e.position))
_DEVICE_LOG = EVENT.select().where(e.device_id == bindparam("at_device"))
_NEWEST_FIRST = (e.at_ms.desc(), e.position.desc())
DEVICE_LOG = _DEVICE_LOG.order_by(*_NEWEST_FIRST).limit(_LIMIT)
_OLDER = and_(
    e.at_ms <= bindparam("at_before"), or_(e.at_ms < bindparam("at_before"), e.position < bindparam("at_before_position"))
)
DEVICE_LOG_BEFORE = _DEVICE_LOG.where(_OLDER).order_by(*_NEWEST_FIRST).limit(_LIMIT)
DELETE_UNLINKED = delete_batch(events, and_(e.at_ms < bindparam("at_before"), e.sequence == 0), e.at_ms).returning(
    e.account_id, e.kind, e.device_id, e.writer
)
"""Events of a version without chains are never sealed."""


_SEARCHED = {
    "at_since": e.at_ms >= bindparam("at_since"),
    "at_until": e.at_ms < bindparam("at_until"),
    "at_source": e.source == bindparam("at_source"),
    "at_text": func.lower(e.description + " " + func.coalesce(e.device_name, "")).like(bindparam("at_text"), escape="\\"),
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
    text = None if search.text is None else f"%{escape_like(search.text.lower())}%"
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
            reserved = await reserve_positions(self._session, len(events), accounts)
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
        rows = list(await delete_sealed_events(self._session, at_ms, limit))
        if len(rows) < limit:
            rows += await self._session.write(DELETE_UNLINKED, at_before=at_ms, at_limit=limit - len(rows))
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
