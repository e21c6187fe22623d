"""The sessions of users, one row for each sign-in."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select, update

from adapters.storage.sql.entity_repository import EntityStatements, SqlEntityRepository
from adapters.storage.sql.repositories.accounts_users_and_projects import MEMBERSHIP
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.sql_session_port import LOOK_UP
from adapters.storage.sql.statement_builders import delete_batch
from adapters.storage.sql.tables import approvals, memberships, service_sessions, user_sessions
from adapters.storage.sql.tables.grants_and_approvals import PENDING_APPROVAL
from domain.accounts.model import Membership
from domain.kernel.ids import SessionId, UserId
from domain.sign_in.model import UserSession

USER_SESSION = RowMapper(user_sessions, UserSession)

_IS_USER = user_sessions.c.user_id == bindparam("at_user")
_NOT_REVOKED = user_sessions.c.revoked_ms.is_(None)

SESSIONS = EntityStatements(USER_SESSION, "session_id")
FIND_WITH_MEMBERSHIP = (
    select(*USER_SESSION.columns, *MEMBERSHIP.columns)
    .join(memberships, memberships.c.membership_id == user_sessions.c.membership_id)
    .where(SESSIONS.is_id)
    .execution_options(**LOOK_UP)
)
_LAST_USED = func.coalesce(service_sessions.c.last_used_ms, user_sessions.c.last_used_ms)
_IS_SERVICE = service_sessions.c.session_id == user_sessions.c.session_id
LIST_OPEN = (
    select(*(_LAST_USED if column.name == "last_used_ms" else column for column in USER_SESSION.columns))
    .outerjoin_from(user_sessions, service_sessions, _IS_SERVICE)
    .where(_IS_USER, _NOT_REVOKED, user_sessions.c.signed_out_ms.is_(None), user_sessions.c.expires_ms > bindparam("at_now"))
    .order_by(_LAST_USED.desc())
)
REVOKE_SESSION = SESSIONS.save.where(_NOT_REVOKED)
REVOKE_BY_USER = update(user_sessions).where(_IS_USER, user_sessions.c.session_id != bindparam("at_keep"), _NOT_REVOKED)
LAST_REVOKED = (
    select(func.max(user_sessions.c.revoked_ms))
    .outerjoin_from(user_sessions, service_sessions, _IS_SERVICE)
    .where(_IS_USER, service_sessions.c.session_id.is_(None))
)
_OVERDUE = (
    update(approvals).where(PENDING_APPROVAL, approvals.c.expires_ms > bindparam("at_ms")).values(expires_ms=bindparam("at_ms"))
)
END_REQUESTS = _OVERDUE.where(approvals.c.requester_session_id == bindparam("at_id"))
END_REQUESTS_BY_USER = _OVERDUE.where(
    approvals.c.requester_user_id == bindparam("at_user"), approvals.c.requester_session_id != bindparam("at_keep")
)
"""A request of a person's own session has no session and goes on."""
DELETE_EXPIRED = delete_batch(user_sessions, user_sessions.c.expires_ms < bindparam("at_before"), user_sessions.c.expires_ms)


class SqlUserSessionRepository(SqlEntityRepository[UserSession]):
    statements = SESSIONS

    async def find_with_membership(self, session_id: SessionId) -> tuple[UserSession, Membership] | None:
        rows = await self._session.read(FIND_WITH_MEMBERSHIP, at_id=session_id)
        if not rows:
            return None
        return USER_SESSION.from_row(rows[0]), MEMBERSHIP.from_row(rows[0][len(USER_SESSION.columns) :])

    async def list_open(self, user_id: UserId, now_ms: int) -> Sequence[UserSession]:
        return await self._list(USER_SESSION, LIST_OPEN, at_user=user_id, at_now=now_ms)

    async def record_use(self, session_id: SessionId, at_ms: int, expires_ms: int, address: str, user_agent: str) -> None:
        await self._session.write(
            SESSIONS.save, at_id=session_id, last_used_ms=at_ms, expires_ms=expires_ms, address=address, user_agent=user_agent
        )

    async def record_verification(self, session_id: SessionId, at_ms: int) -> None:
        await self._session.write(SESSIONS.save, at_id=session_id, verified_ms=at_ms)

    async def sign_out(self, session_id: SessionId, at_ms: int) -> None:
        await self._session.write(SESSIONS.save, at_id=session_id, signed_out_ms=at_ms)

    async def revoke(self, session_id: SessionId, at_ms: int) -> None:
        await self._session.write(REVOKE_SESSION, at_id=session_id, revoked_ms=at_ms)
        await self._session.write(END_REQUESTS, at_id=session_id, at_ms=at_ms)

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        await self._session.write(REVOKE_BY_USER, at_user=user_id, at_keep=keep or "", revoked_ms=at_ms)
        await self._session.write(END_REQUESTS_BY_USER, at_user=user_id, at_keep=keep or "", at_ms=at_ms)

    async def last_revoked_ms(self, user_id: UserId) -> int | None:
        return await self._number_or_none(LAST_REVOKED, at_user=user_id)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_EXPIRED, at_before=expires_ms, at_limit=limit)
