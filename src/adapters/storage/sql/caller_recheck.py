"""Reads the caller of a writing transaction again: its session and the role of its membership, or whether its key is enabled.

One row by its unique index. PostgreSQL locks it until the transaction ends: a membership and a session FOR SHARE, because a new
role and the end of a session are ordinary updates; a key FOR KEY SHARE, because the time of its last use is written every few
seconds and must not wait for commands (whoever disables a key locks it FOR UPDATE). SQLite has one writer, so nothing changes
before the commit; there the read goes along with the first statement of the transaction and costs no thread hop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Select, bindparam, select

from adapters.storage.sql.sql_session_port import POSTGRES, Row, SqlSession
from adapters.storage.sql.tables import api_keys, memberships, user_sessions
from domain.kernel.caller import (
    ApiKeyCaller,
    Role,
    SessionCaller,
    check_current_role,
    check_key_is_enabled,
    check_session_is_open,
)
from domain.kernel.errors import DomainError, Unavailable

READ_ROLE = select(memberships.c.role).where(memberships.c.membership_id == bindparam("at_id")).with_for_update(read=True)
READ_SESSION = (
    select(memberships.c.role, user_sessions.c.revoked_ms)
    .join(user_sessions, user_sessions.c.membership_id == memberships.c.membership_id)
    .where(user_sessions.c.session_id == bindparam("at_id"))
    .with_for_update(read=True)
)
READ_KEY_STATE = (
    select(api_keys.c.enabled).where(api_keys.c.key_id == bindparam("at_id")).with_for_update(read=True, key_share=True)
)


@asynccontextmanager
async def checked_caller(session: SqlSession, caller: SessionCaller | ApiKeyCaller) -> AsyncIterator[None]:
    """Around the body of the transaction. Raises Unauthenticated or PermissionDenied when the caller has lost its authority, also
    in place of another error of the body: who has lost it learns nothing more."""
    statement, found_by = _statement_for(caller)
    read = await session.begin_read(statement, at_id=found_by)
    if session.dialect == POSTGRES:
        _check(caller, await read.rows())
        yield
        return
    try:
        yield
    except Unavailable:
        raise
    except DomainError:
        _check(caller, await read.rows())
        raise
    _check(caller, await read.rows())


def _statement_for(caller: SessionCaller | ApiKeyCaller) -> tuple[Select[Any], str]:
    if isinstance(caller, ApiKeyCaller):
        return READ_KEY_STATE, caller.key_id
    return (READ_ROLE, caller.membership_id) if caller.session_id is None else (READ_SESSION, caller.session_id)


def _check(caller: SessionCaller | ApiKeyCaller, rows: Sequence[Row]) -> None:
    if isinstance(caller, SessionCaller):
        if caller.session_id is not None and rows:
            check_session_is_open(rows[0][1])
        check_current_role(caller, Role(rows[0][0]) if rows else None)
    else:
        check_key_is_enabled(bool(rows[0][0]) if rows else None)
