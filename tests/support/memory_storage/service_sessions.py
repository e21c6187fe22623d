"""Service sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain.kernel.ids import AccountId, SessionId
from domain.sign_in.model import ServiceSessionToken
from support.memory_storage.sessions import USER_SESSIONS
from support.memory_storage.tables import Database, Table

SERVICE_SESSIONS: Table[SessionId, ServiceSessionToken] = Table("service_sessions")


class MemoryServiceSessionRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: ServiceSessionToken) -> None:
        self._database.writable_rows(SERVICE_SESSIONS)[session.session_id] = session

    async def find_by_hash(self, secret_hash: bytes) -> ServiceSessionToken | None:
        every = self._database.rows(SERVICE_SESSIONS).values()
        sessions = self._database.rows(USER_SESSIONS)
        return next((each for each in every if each.secret_hash == secret_hash and each.session_id in sessions), None)

    async def list_open(self, account_id: AccountId, now_ms: int) -> Sequence[ServiceSessionToken]:
        every = self._database.rows(SERVICE_SESSIONS).values()
        found = [each for each in every if each.account_id == account_id and self._is_open(each, now_ms)]
        return sorted(found, key=lambda each: (each.created_ms, each.session_id))

    async def find_open_for_share(self, session_id: SessionId, now_ms: int) -> ServiceSessionToken | None:
        found = self._database.rows(SERVICE_SESSIONS).get(session_id)
        return found if found is not None and self._is_open(found, now_ms) else None

    async def update_last_used(self, used: Mapping[SessionId, int]) -> None:
        rows = self._database.writable_rows(SERVICE_SESSIONS)
        for session_id in used.keys() & rows.keys():
            at_ms = max(used[session_id], rows[session_id].last_used_ms or 0)
            rows[session_id] = replace(rows[session_id], last_used_ms=at_ms)

    def _is_open(self, session: ServiceSessionToken, now_ms: int) -> bool:
        found = self._database.rows(USER_SESSIONS).get(session.session_id)
        return now_ms < session.expires_ms and found is not None and found.revoked_ms is None
