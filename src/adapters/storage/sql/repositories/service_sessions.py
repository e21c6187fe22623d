"""Service sessions. Each has a row in `user_sessions`, which says whether it is revoked, and with which it is deleted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, insert

from adapters.storage.sql.mapper import Converter, Mapper, enum_converter, from_json, to_json
from adapters.storage.sql.session import DbSession
from adapters.storage.sql.tables import service_sessions, user_sessions
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId
from domain.team.service_sessions import ServiceSession

_OPERATIONS: Converter = (to_json, lambda text: tuple(from_json(text)))
SERVICE_SESSION = Mapper(service_sessions, ServiceSession, {"role": enum_converter(Role), "operations": _OPERATIONS})

s = service_sessions.c
ADD = insert(service_sessions)
FIND = SERVICE_SESSION.select().where(s.secret_hash == bindparam("at_hash"))
LIST_OPEN = (
    SERVICE_SESSION.select()
    .join(user_sessions, user_sessions.c.session_id == s.session_id)
    .where(s.account_id == bindparam("at_account"), s.expires_ms > bindparam("at_now"), user_sessions.c.revoked_ms.is_(None))
    .order_by(s.created_ms, s.session_id)
)


class SqlServiceSessionRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, session: ServiceSession) -> None:
        await self._session.write(ADD, **SERVICE_SESSION.values(session))

    async def find_by_hash(self, secret_hash: bytes) -> ServiceSession | None:
        return SERVICE_SESSION.first_or_none(await self._session.read(FIND, at_hash=secret_hash))

    async def list_open(self, account_id: AccountId, now_ms: int) -> Sequence[ServiceSession]:
        rows = await self._session.read(LIST_OPEN, at_account=account_id, at_now=now_ms)
        return [SERVICE_SESSION.from_row(row) for row in rows]
