"""The log, and counters beside it so that nobody counts millions of rows: all of an account, and by kind and device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import BindParameter, Integer, Select, bindparam, delete, func, literal_column, select, text

from adapters.storage.sql.pouring import inserting
from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import JSON, Mapper
from adapters.storage.sql.session import POSTGRES, Session
from adapters.storage.sql.tables import event_counts, event_totals, events
from domain.events.model import Event
from domain.kernel.ids import AccountId, DeviceId

EVENT = Mapper(events, Event, {"payload": JSON})

Counted = tuple[AccountId, str, str]
"""Account, kind, and device or ""."""

e = events.c
_ACCOUNT = e.account_id == bindparam("at_account")
_ACCOUNT_OF_DEVICE = func.coalesce(e.account_id, literal_column("''")) == bindparam("at_account")
"""The same, but no reason to go by the account's index: SQLite takes it for as good as the device's, and reads a whole kind."""
_LIMIT: BindParameter[int] = bindparam("at_limit")

_KEPT = (*EVENT.names, "public")
"""A property of an event is a column of its own here, so that readers of the feed can ask for it."""
ADD = inserting(events, _KEPT, json=("payload",))
ADD_COUNTED = inserting(events, _KEPT[1:], json=("payload",))
"""Where the database counts the position."""
_row = attrgetter(*EVENT.names, "is_public")
_row_counted = attrgetter(*EVENT.names[1:], "is_public")
ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(5492025317), pg_notify('latchboard_log', '')")
"""PostgreSQL numbers rows when they are written, not when they are committed; a feed that resumes must not see a number come in
late. So there, transactions that write to the log commit one after the other. The number itself has no meaning. In the same
breath the other instances are told; PostgreSQL does so when the transaction commits, and once, however often it was asked."""

COUNT_UP = inserting(event_totals, ("account_id", "total"), adding="total")
COUNT_EACH_UP = inserting(event_counts, ("account_id", "kind", "device_id", "total"), adding="total")
"""Add to the counter, or begin with it."""
_KEYS = ("at_account", "at_kind", "at_device")
UNCOUNT = delete(event_counts).where(
    event_counts.c.account_id == bindparam("at_account"),
    event_counts.c.kind == bindparam("at_kind"),
    event_counts.c.device_id == bindparam("at_device"),
    event_counts.c.total == 0,
)
"""Of devices that are long gone."""
NUMBERED = text("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
"""The position given last. SQLite has one writer and counts without gaps, so it is the last of those just written."""
NUMBERS = text("SELECT nextval(pg_get_serial_sequence('events', 'position')) FROM generate_series(1, :at_count)").bindparams(
    bindparam("at_count", type_=Integer())
)
TOTAL = select(event_totals.c.total).where(event_totals.c.account_id == bindparam("at_account"))
SINCE = (
    EVENT.select()
    .where(_ACCOUNT, e.public, e.position > bindparam("at_after"))
    .order_by(e.position)
    .limit(_LIMIT)
)
FOLLOWING = EVENT.select().where(e.position > bindparam("at_after")).order_by(e.position).limit(_LIMIT)
LAST = select(func.max(e.position))
NEWEST = select(func.max(e.position)).where(_ACCOUNT)
OLDEST = select(func.min(e.position)).where(_ACCOUNT)
_DEVICE_LOG = EVENT.select().where(e.device_id == bindparam("at_device"))
_NEWEST_FIRST = (e.at_ms.desc(), e.position.desc())
LOG = _DEVICE_LOG.order_by(*_NEWEST_FIRST).limit(_LIMIT)
LOG_BEFORE = _DEVICE_LOG.where(e.at_ms < bindparam("at_before")).order_by(*_NEWEST_FIRST).limit(_LIMIT)
FORGET = forgetting(events, e.at_ms < bindparam("at_before"), e.at_ms).returning(e.account_id, e.kind, e.device_id)


@cache
def page(before: bool, kind: bool, device: bool) -> Select[Any]:
    """Constants, one for each shape of the question."""
    return _filtered(EVENT.select(), before, kind, device).order_by(e.position.desc()).limit(_LIMIT)


@cache
def count(kind: bool, device: bool) -> Select[Any]:
    """Of the counters; at most one a device or one a kind is read."""
    c = event_counts.c
    statement = select(func.coalesce(func.sum(c.total), 0)).where(c.account_id == bindparam("at_account"))
    if kind:
        statement = statement.where(c.kind == bindparam("at_kind"))
    if device:
        statement = statement.where(c.device_id == bindparam("at_device"))
    return statement


def _filtered(statement: Select[Any], before: bool, kind: bool, device: bool) -> Select[Any]:
    statement = statement.where(_ACCOUNT_OF_DEVICE if kind and device else _ACCOUNT)
    if before:
        statement = statement.where(e.position < bindparam("at_before"))
    if kind:
        statement = statement.where(e.kind == bindparam("at_kind"))
    if device:
        statement = statement.where(e.device_id == bindparam("at_device"))
    return statement


def _given(**params: object) -> dict[str, object]:
    return {name: value for name, value in params.items() if value is not None}


class SqlEvents:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def append(self, event: Event) -> Event:
        return (await self.append_all([event]))[0]

    async def append_all(self, events: Sequence[Event]) -> Sequence[Event]:
        if not events:
            return []
        if self._session.dialect == POSTGRES:
            await self._session.write(ONE_AT_A_TIME)
            numbers = sorted(row[0] for row in await self._session.write(NUMBERS, at_count=len(events)))
            numbered = [event.at(number) for event, number in zip(events, numbers, strict=True)]
            await self._session.pour(ADD, list(map(_row, numbered)))
            await self._count(Counter(map(_counted, events)))
            return numbered
        await self._session.pour(ADD_COUNTED, list(map(_row_counted, events)))
        await self._count(Counter(map(_counted, events)))
        first = (await self._session.write(NUMBERED))[0][0] - len(events) + 1
        return [event.at(number) for number, event in enumerate(events, first)]

    async def page(
        self,
        account_id: AccountId,
        *,
        limit: int,
        before: int | None = None,
        kind: str | None = None,
        device_id: DeviceId | None = None,
    ) -> Sequence[Event]:
        statement = page(before is not None, kind is not None, device_id is not None)
        params = _given(at_before=before, at_kind=kind, at_device=device_id)
        rows = await self._session.read(statement, at_account=account_id, at_limit=limit, **params)
        return [EVENT.of(row) for row in rows]

    async def since(self, account_id: AccountId, after: int, limit: int) -> Sequence[Event]:
        rows = await self._session.read(SINCE, at_account=account_id, at_after=after, at_limit=limit)
        return [EVENT.of(row) for row in rows]

    async def following(self, after: int, limit: int) -> Sequence[Event]:
        return [EVENT.of(row) for row in await self._session.read(FOLLOWING, at_after=after, at_limit=limit)]

    async def last(self) -> int:
        return (await self._session.read(LAST))[0][0] or 0

    async def total(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        if kind is None and device_id is None:
            rows = await self._session.read(TOTAL, at_account=account_id)
            return int(rows[0][0]) if rows else 0
        params = _given(at_kind=kind, at_device=device_id)
        statement = count(kind is not None, device_id is not None)
        return int((await self._session.read(statement, at_account=account_id, **params))[0][0])

    async def newest(self, account_id: AccountId) -> int:
        return (await self._session.read(NEWEST, at_account=account_id))[0][0] or 0

    async def oldest(self, account_id: AccountId) -> int:
        return (await self._session.read(OLDEST, at_account=account_id))[0][0] or 0

    async def before_time(self, device_id: DeviceId, *, limit: int, before_ms: int | None) -> Sequence[Event]:
        statement = LOG if before_ms is None else LOG_BEFORE
        rows = await self._session.read(statement, at_device=device_id, at_limit=limit, **_given(at_before=before_ms))
        return [EVENT.of(row) for row in rows]

    async def forget_before(self, at_ms: int, limit: int) -> int:
        rows = await self._session.write(FORGET, at_before=at_ms, at_limit=limit)
        gone = Counter((account_id, kind, device_id or "") for _, account_id, kind, device_id in rows)
        await self._count({counted: -number for counted, number in gone.items()})
        await self._session.later(UNCOUNT, [dict(zip(_KEYS, counted, strict=True)) for counted in sorted(gone)])
        return len(rows)

    async def _count(self, by: Mapping[Counted, int]) -> None:
        """In the accounts' order, so that two that count do not wait for each other crosswise."""
        accounts: Counter[AccountId] = Counter()
        for (account_id, _, _), number in by.items():
            accounts[account_id] += number
        await self._session.pour(COUNT_UP, sorted(accounts.items()))
        await self._session.pour(COUNT_EACH_UP, [(*counted, number) for counted, number in sorted(by.items())])


def _counted(event: Event) -> Counted:
    return event.account_id, event.kind, event.device_id or ""
