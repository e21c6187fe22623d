"""Service sessions."""

from __future__ import annotations

from collections.abc import Sequence

from domain.accounts.model import UserSession
from domain.kernel.ids import AccountId, SessionId
from domain.team.service_sessions import ServiceSession
from support.memory_storage.tables import Database, Table

SERVICE_SESSIONS: Table[SessionId, ServiceSession] = Table("service_sessions")
_USER_SESSIONS: Table[SessionId, UserSession] = Table("user_sessions")


class MemoryServiceSessionRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: ServiceSession) -> None:
        self._database.writable_rows(SERVICE_SESSIONS)[session.session_id] = session

    async def find_by_hash(self, secret_hash: bytes) -> ServiceSession | None:
        every = self._database.rows(SERVICE_SESSIONS).values()
        return next((each for each in every if each.secret_hash == secret_hash), None)

    async def list_open(self, account_id: AccountId, now_ms: int) -> Sequence[ServiceSession]:
        sessions = self._database.rows(_USER_SESSIONS)
        return [
            each
            for each in self._database.rows(SERVICE_SESSIONS).values()
            if each.account_id == account_id and now_ms < each.expires_ms and sessions[each.session_id].revoked_ms is None
        ]
