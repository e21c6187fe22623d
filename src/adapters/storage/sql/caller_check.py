"""Reads the caller of a writing transaction again: the role of its membership, or whether its key is enabled.

One row by its unique index. PostgreSQL locks it until the transaction ends: a membership FOR SHARE, because a new role is an
ordinary update; a key FOR KEY SHARE, because the time of its last use is written every few seconds and must not wait for commands
(whoever disables a key locks it FOR UPDATE). SQLite has one writer, so nothing changes before the commit; there the read goes
along with the first statement of the transaction and costs no thread hop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import bindparam, select

from adapters.storage.sql.session import POSTGRES, DbSession, Row
from adapters.storage.sql.tables import api_keys, memberships
from domain.kernel.authority import check_current_role, check_key_is_enabled
from domain.kernel.caller import ApiKeyCaller, Role, Session
from domain.kernel.errors import DomainError, Unavailable

READ_ROLE = select(memberships.c.role).where(memberships.c.membership_id == bindparam("at_id")).with_for_update(read=True)
READ_KEY_STATE = (
    select(api_keys.c.enabled).where(api_keys.c.key_id == bindparam("at_id")).with_for_update(read=True, key_share=True)
)


@asynccontextmanager
async def checked_caller(session: DbSession, caller: Session | ApiKeyCaller) -> AsyncIterator[None]:
    """Around the body of the transaction. Raises Unauthenticated or PermissionDenied when the caller has lost its authority, also
    in place of another error of the body: who has lost it learns nothing more."""
    statement, found_by = (READ_ROLE, caller.membership_id) if isinstance(caller, Session) else (READ_KEY_STATE, caller.key_id)
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


def _check(caller: Session | ApiKeyCaller, rows: Sequence[Row]) -> None:
    if isinstance(caller, Session):
        check_current_role(caller, Role(rows[0][0]) if rows else None)
    else:
        check_key_is_enabled(bool(rows[0][0]) if rows else None)
