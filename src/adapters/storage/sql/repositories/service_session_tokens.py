"""Service sessions. Each has a row in `user_sessions`, which says whether it is revoked, and with which it is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, insert, or_, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import JSON_TUPLE, RowMapper, enum_converter
from adapters.storage.sql.tables import service_sessions, user_sessions
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, SessionId
from domain.team.service_sessions import ServiceSessionToken

SERVICE_SESSION = RowMapper(service_sessions, ServiceSessionToken, {"role": enum_converter(Role), "operations": JSON_TUPLE})

s = service_sessions.c
ADD = insert(service_sessions)
FIND = SERVICE_SESSION.select().where(s.secret_hash == bindparam("at_hash"))
_OPEN = (
    SERVICE_SESSION.select()
    .join(user_sessions, user_sessions.c.session_id == s.session_id)
    .where(s.expires_ms > bindparam("at_now"), user_sessions.c.revoked_ms.is_(None))
)
FIND_OPEN = _OPEN.where(s.session_id == bindparam("at_id"))
FIND_OPEN_FOR_SHARE = {False: FIND_OPEN, True: FIND_OPEN.with_for_update(read=True, of=user_sessions)}
LIST_OPEN = _OPEN.where(s.account_id == bindparam("at_account")).order_by(s.created_ms, s.session_id)
_USED_MS = bindparam("at_used", type_=s.last_used_ms.type)
TOUCH = (
    update(service_sessions)
    .where(s.session_id == bindparam("at_id"), or_(s.last_used_ms.is_(None), s.last_used_ms < _USED_MS))
    .values(last_used_ms=_USED_MS)
)
"""The time of use is in this table: `user_sessions` is locked by each change that the service session makes."""


class SqlServiceSessionTokenRepository(SqlRepository):
    async def add(self, session: ServiceSessionToken) -> None:
        await self._session.write(ADD, **SERVICE_SESSION.values(session))

    async def find_by_hash(self, secret_hash: bytes) -> ServiceSessionToken | None:
        return await self._first(SERVICE_SESSION, FIND, at_hash=secret_hash)

    async def find_open_for_share(self, session_id: SessionId, now_ms: int) -> ServiceSessionToken | None:
        statement = FIND_OPEN_FOR_SHARE[self._session.writable]
        return await self._first(SERVICE_SESSION, statement, at_id=session_id, at_now=now_ms)

    async def list_open(self, account_id: AccountId, now_ms: int) -> Sequence[ServiceSessionToken]:
        return await self._list(SERVICE_SESSION, LIST_OPEN, at_account=account_id, at_now=now_ms)

    async def update_last_used(self, used: Mapping[SessionId, int]) -> None:
        await self._session.execute_many(TOUCH, [{"at_id": each, "at_used": used[each]} for each in sorted(used)])
