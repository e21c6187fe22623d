"""Audit seals, and the event log as linked records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Integer, and_, bindparam, func, insert, select

from adapters.storage.sql.mapping import RowMapper, SqlRepository
from adapters.storage.sql.repositories.events import EVENT, encode_log_cursor
from adapters.storage.sql.session import Row
from adapters.storage.sql.statements import escape_like
from adapters.storage.sql.tables import audit_rounds, audit_seals, event_totals, events
from domain.audit.seals import AuditSeal, ChainHeads
from domain.events.cursors import EventLogCursor
from domain.events.hash_chain import ChainedEvent, EventChainHead
from domain.kernel.ids import AccountId

SEAL = RowMapper(audit_seals, AuditSeal)

s, e, t = audit_seals.c, events.c, event_totals.c
_LIMIT = bindparam("at_limit", type_=Integer())
_OF_ACCOUNT = s.account_id == bindparam("at_account")

HEADS = select(t.account_id, t.writer, t.sequence, t.hash, t.position).where(t.sequence > 0)
HEADS_OF_ACCOUNT = HEADS.where(t.account_id == bindparam("at_account"))
RECORDS = (
    EVENT.select()
    .add_columns(e.sequence, e.hash)
    .where(e.account_id == bindparam("at_account"), e.position > bindparam("at_after"), e.sequence > 0)
    .order_by(e.position)
    .limit(_LIMIT)
)
RECORDS_MENTIONING = RECORDS.where(e.payload.like(bindparam("at_text"), escape="\\"))
SEALS = SEAL.select().where(_OF_ACCOUNT, s.number > bindparam("at_after")).order_by(s.number).limit(_LIMIT)
ANCHOR = SEAL.select().where(_OF_ACCOUNT, s.purged).order_by(s.number.desc()).limit(1)
_newest = select(s.account_id, func.max(s.number).label("number")).group_by(s.account_id).subquery()
LAST_SEALS = SEAL.select().join(_newest, and_(s.account_id == _newest.c.account_id, s.number == _newest.c.number))
LAST_SEALED = select(func.max(audit_rounds.c.sealed_ms))

ADD_SEAL = insert(audit_seals)
ADD_ROUND = insert(audit_rounds)


class SqlAuditLogRepository(SqlRepository):
    async def heads(self, account_id: AccountId) -> ChainHeads:
        return _heads(await self._session.read(HEADS_OF_ACCOUNT, at_account=account_id)).get(account_id, {})

    async def heads_of_all(self) -> Mapping[AccountId, ChainHeads]:
        return _heads(await self._session.read(HEADS))

    async def list_records(
        self, account_id: AccountId, *, after: int, limit: int, mentioning: str | None = None
    ) -> Sequence[ChainedEvent]:
        params: dict[str, Any] = {"at_account": account_id, "at_after": after, "at_limit": limit}
        if mentioning is not None:
            params["at_text"] = f"%{escape_like(mentioning)}%"
        rows = await self._session.read(RECORDS if mentioning is None else RECORDS_MENTIONING, **params)
        return [ChainedEvent(EVENT.from_row(row), row[-2], row[-1]) for row in rows]

    async def list_seals(self, account_id: AccountId, *, after: int, limit: int) -> Sequence[AuditSeal]:
        return await self._list(SEAL, SEALS, at_account=account_id, at_after=after, at_limit=limit)

    async def last_seals(self) -> Mapping[AccountId, AuditSeal]:
        return {seal.account_id: seal for seal in map(SEAL.from_row, await self._session.read(LAST_SEALS))}

    async def find_anchor(self, account_id: AccountId) -> AuditSeal | None:
        return await self._first(SEAL, ANCHOR, at_account=account_id)

    async def last_sealed_ms(self) -> int | None:
        return await self._number_or_none(LAST_SEALED)

    async def add_round(self, sealed_ms: int, log: EventLogCursor, seals: Sequence[AuditSeal]) -> None:
        if seals:
            await self._session.execute_many(ADD_SEAL, [{**SEAL.values(seal), "purged": False} for seal in seals])
        await self._session.write(ADD_ROUND, sealed_ms=sealed_ms, log=encode_log_cursor(log))


def _heads(rows: Sequence[Row]) -> dict[AccountId, dict[int, EventChainHead]]:
    found: dict[AccountId, dict[int, EventChainHead]] = {}
    for account_id, writer, sequence, hashed, position in rows:
        found.setdefault(account_id, {})[writer] = EventChainHead(sequence, hashed, position)
    return found
