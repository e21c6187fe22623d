"""The sessions of users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from domain.accounts.model import Membership
from domain.approvals.model import ApprovalStatus, Requester
from domain.kernel.ids import SessionId, UserId
from domain.sign_in.model import UserSession
from support.memory_storage.accounts import MEMBERSHIPS
from support.memory_storage.approvals import APPROVALS
from support.memory_storage.service_sessions import SERVICE_SESSIONS
from support.memory_storage.sessions import USER_SESSIONS
from support.memory_storage.tables import Database


class MemoryUserSessionRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: UserSession) -> None:
        self._database.writable_rows(USER_SESSIONS)[session.session_id] = session

    async def get(self, session_id: SessionId) -> UserSession | None:
        return self._database.rows(USER_SESSIONS).get(session_id)

    async def get_for_update(self, session_id: SessionId) -> UserSession | None:
        return await self.get(session_id)

    async def find_with_membership(self, session_id: SessionId) -> tuple[UserSession, Membership] | None:
        session = self._database.rows(USER_SESSIONS).get(session_id)
        membership = None if session is None else self._database.rows(MEMBERSHIPS).get(session.membership_id)
        return None if session is None or membership is None else (session, membership)

    async def list_open(self, user_id: UserId, now_ms: int) -> list[UserSession]:
        services = self._database.rows(SERVICE_SESSIONS)
        found = [
            replace(one, last_used_ms=service.last_used_ms)
            if (service := services.get(one.session_id)) is not None and service.last_used_ms is not None
            else one
            for one in self._database.rows(USER_SESSIONS).values()
            if one.user_id == user_id and one.is_open(now_ms)
        ]
        return sorted(found, key=lambda one: -one.last_used_ms)

    async def record_use(self, session_id: SessionId, at_ms: int, expires_ms: int, address: str, user_agent: str) -> None:
        self._change(
            lambda one: one.session_id == session_id,
            last_used_ms=at_ms,
            expires_ms=expires_ms,
            address=address,
            user_agent=user_agent,
        )

    async def record_verification(self, session_id: SessionId, at_ms: int) -> None:
        self._change(lambda one: one.session_id == session_id, verified_ms=at_ms)

    async def sign_out(self, session_id: SessionId, at_ms: int) -> None:
        self._change(lambda one: one.session_id == session_id, signed_out_ms=at_ms)

    async def revoke(self, session_id: SessionId, at_ms: int) -> None:
        self._change(lambda one: one.session_id == session_id and one.revoked_ms is None, revoked_ms=at_ms)
        self._end_requests(lambda by: by.session_id == session_id, at_ms)

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        self._change(lambda one: one.user_id == user_id and one.session_id != keep and one.revoked_ms is None, revoked_ms=at_ms)
        self._end_requests(lambda by: by.user_id == user_id and by.session_id not in (None, keep), at_ms)

    async def last_revoked_ms(self, user_id: UserId) -> int | None:
        services = self._database.rows(SERVICE_SESSIONS)
        every = self._database.rows(USER_SESSIONS).values()
        own = [one.revoked_ms for one in every if one.user_id == user_id and one.session_id not in services]
        return max((at_ms for at_ms in own if at_ms is not None), default=None)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        old = [key for key, one in self._database.rows(USER_SESSIONS).items() if one.expires_ms < expires_ms]
        return self._database.delete(USER_SESSIONS, old[:limit])

    def _change(self, chosen: Callable[[UserSession], bool], **changes: Any) -> None:
        rows = self._database.writable_rows(USER_SESSIONS)
        for key, one in rows.items():
            if chosen(one):
                rows[key] = replace(one, **changes)

    def _end_requests(self, chosen: Callable[[Requester], bool], at_ms: int) -> None:
        rows = self._database.writable_rows(APPROVALS)
        for key, one in rows.items():
            if one.status is ApprovalStatus.PENDING and chosen(one.requested_by):
                rows[key] = replace(one, expires_ms=min(one.expires_ms, at_ms))
