"""The log, and a counter beside it so that nobody counts millions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, Select, bindparam, func, insert, select, text, update

from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import JSON, Mapper, ignoring
from adapters.storage.sql.session import POSTGRES, Session
from adapters.storage.sql.tables import event_totals, events
from domain.events.model import Event
from domain.kernel.ids import AccountId, DeviceId

EVENT = Mapper(events, Event, {"payload": JSON})

e = events.c
_ACCOUNT = e.account_id == bindparam("at_account")
_LIMIT: BindParameter[int] = bindparam("at_limit")

ADD = insert(events).returning(e.position)
ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(5492025317)")
"""PostgreSQL numbers rows when they are written, not when they are committed; a feed that resumes must not see a number come in
late. So there, transactions that write to the log commit one after the other. The number itself has no meaning."""

OPEN_TOTAL = ignoring(event_totals)
COUNT_UP = (
    update(event_totals)
    .where(event_totals.c.account_id == bindparam("at_account"))
    .values(total=event_totals.c.total + bindparam("at_by", type_=event_totals.c.total.type))
    .returning(event_totals.c.total)
)
TOTAL = select(event_totals.c.total).where(event_totals.c.account_id == bindparam("at_account"))
SINCE = (
    EVENT.select()
    .where(_ACCOUNT, e.public, e.position > bindparam("at_after"))
    .order_by(e.position)
    .limit(_LIMIT)
)
NEWEST = select(func.max(e.position)).where(_ACCOUNT)
OLDEST = select(func.min(e.position)).where(_ACCOUNT)
_DEVICE_LOG = EVENT.select().where(e.device_id == bindparam("at_device"))
_NEWEST_FIRST = (e.at_ms.desc(), e.position.desc())
LOG = _DEVICE_LOG.order_by(*_NEWEST_FIRST).limit(_LIMIT)
LOG_BEFORE = _DEVICE_LOG.where(e.at_ms < bindparam("at_before")).order_by(*_NEWEST_FIRST).limit(_LIMIT)
FORGET = forgetting(events, e.at_ms < bindparam("at_before"), e.at_ms).returning(e.account_id)


@cache
def page(before: bool, kind: bool, device: bool) -> Select[Any]:
    """Constants, one for each shape of the question."""
    return _filtered(EVENT.select(), before, kind, device).order_by(e.position.desc()).limit(_LIMIT)


@cache
def count(kind: bool, device: bool) -> Select[Any]:
    return _filtered(select(func.count()).select_from(events), False, kind, device)


def _filtered(statement: Select[Any], before: bool, kind: bool, device: bool) -> Select[Any]:
    statement = statement.where(_ACCOUNT)
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
        if self._session.dialect == POSTGRES:
            await self._session.write(ONE_AT_A_TIME)
        await self._count(event.account_id, 1)
        rows = await self._session.write(ADD, **EVENT.values(event, "position"), public=event.is_public)
        return replace(event, position=rows[0][0])

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
        gone: dict[AccountId, int] = {}
        for _, account_id in rows:
            gone[account_id] = gone.get(account_id, 0) + 1
        for account_id, number in sorted(gone.items()):
            await self._count(account_id, -number)
        return len(rows)

    async def _count(self, account_id: AccountId, by: int) -> None:
        if await self._session.write(COUNT_UP, at_account=account_id, at_by=by):
            return
        await self._session.write(OPEN_TOTAL[self._session.dialect], account_id=account_id, total=0)
        await self._session.write(COUNT_UP, at_account=account_id, at_by=by)
