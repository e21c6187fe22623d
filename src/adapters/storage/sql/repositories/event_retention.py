"""Deletes old events, whole sealed parts of the log from its beginning, so that what is left of each chain can be verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Integer, and_, bindparam, delete, literal, select, update

from adapters.storage.sql.repositories.event_log_position_reservation import NOT_COVERED, cursor_parameters
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE, Row, SqlSession
from adapters.storage.sql.tables import audit_rounds, audit_seals, events
from domain.events.cursors import EventLogCursor

s = audit_seals.c
e = events.c
_LIMIT = bindparam("at_limit", type_=Integer())
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
    chosen = select(e.position).where(_COVERED[dialect]).order_by(e.position).limit(_LIMIT)
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
