"""API keys. Deleting a key deletes its grants and webhooks by foreign key.

Secrets of the installation itself, encrypted.

Service sessions. Each has a row in `user_sessions`, which says whether it is revoked, and with which it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, insert, or_, select, update

from adapters.storage.sql.mapping import (
    JSON_TUPLE,
    AccountEntityStatements,
    RowMapper,
    SqlAccountEntityRepository,
    SqlRepository,
    enum_converter,
)
from adapters.storage.sql.session import LOOK_UP
from adapters.storage.sql.statements import insert_or_ignore
from adapters.storage.sql.tables import api_keys, service_secrets, service_sessions, user_sessions
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, KeyId, SessionId
from domain.keys.model import ApiKey, KeyUse
from domain.sign_in.model import ServiceSessionToken

API_KEY = RowMapper(api_keys, ApiKey, {"allowed_networks": JSON_TUPLE}, cached=1_024)

_USED_MS = bindparam("at_used", type_=api_keys.c.last_used_ms.type)

KEYS = AccountEntityStatements(
    API_KEY, "key_id", unchanged=("account_id", "created_ms"), lock=lambda one: {False: one, True: one.with_for_update()}
)
"""FOR UPDATE, not NO KEY UPDATE: it waits for the transactions that hold the key FOR KEY SHARE (`sql/unit_of_work.py`)."""
GET_FOR_SHARE = {False: KEYS.get[False], True: KEYS.get[False].with_for_update(read=True, key_share=True)}
FIND_BY_HASH, FIND_BY_PREVIOUS_HASH = (
    API_KEY.select().where(column == bindparam("at_hash")).execution_options(**LOOK_UP)
    for column in (api_keys.c.secret_hash, api_keys.c.previous_hash)
)
TOUCH = (
    update(api_keys)
    .where(KEYS.is_id, or_(api_keys.c.last_used_ms.is_(None), api_keys.c.last_used_ms < _USED_MS))
    .values(last_used_ms=_USED_MS, last_used_prefix=bindparam("at_prefix"))
)


class SqlApiKeyRepository(SqlAccountEntityRepository[ApiKey]):
    statements = KEYS

    async def get_for_share(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        statement = GET_FOR_SHARE[self._session.writable]
        return await self._first(API_KEY, statement, at_id=key_id, at_account=account_id)

    async def find_by_hash(self, secret_hash: bytes) -> ApiKey | None:
        return await self._first(API_KEY, FIND_BY_HASH, at_hash=secret_hash)

    async def find_by_previous_hash(self, secret_hash: bytes) -> ApiKey | None:
        return await self._first(API_KEY, FIND_BY_PREVIOUS_HASH, at_hash=secret_hash)

    async def update_last_used(self, used: Mapping[KeyId, KeyUse]) -> None:
        rows = [{"at_id": each, "at_used": used[each].at_ms, "at_prefix": used[each].prefix} for each in sorted(used)]
        await self._session.execute_many(TOUCH, rows)


k = service_secrets.c

_NAME = k.name == bindparam("at_name")
GET_SECRET = select(k.sealed).where(_NAME)
ADD_SECRET = insert_or_ignore(service_secrets)
LIST_SECRETS = select(k.name, k.sealed).order_by(k.name)
REKEY_SECRET = update(service_secrets).where(_NAME, k.sealed == bindparam("at_before")).returning(k.name)


class SqlServiceSecretRepository(SqlRepository):
    async def get(self, name: str) -> bytes | None:
        rows = await self._session.read(GET_SECRET, at_name=name)
        return bytes(rows[0][0]) if rows else None

    async def add_if_absent(self, name: str, sealed: bytes) -> None:
        await self._session.write(ADD_SECRET, name=name, sealed=sealed)

    async def list_all(self) -> Sequence[tuple[str, bytes]]:
        return [(name, bytes(sealed)) for name, sealed in await self._session.read(LIST_SECRETS)]

    async def rekey(self, name: str, before: bytes, sealed: bytes) -> int:
        return await self._count_changed(REKEY_SECRET, at_name=name, at_before=before, sealed=sealed)


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
_SESSION_USED_MS = bindparam("at_used", type_=s.last_used_ms.type)
TOUCH_SESSION = (
    update(service_sessions)
    .where(s.session_id == bindparam("at_id"), or_(s.last_used_ms.is_(None), s.last_used_ms < _SESSION_USED_MS))
    .values(last_used_ms=_SESSION_USED_MS)
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
        await self._session.execute_many(TOUCH_SESSION, [{"at_id": each, "at_used": used[each]} for each in sorted(used)])
