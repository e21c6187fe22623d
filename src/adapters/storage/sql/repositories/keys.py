"""API keys. Their grants and webhooks go with them by foreign key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, insert, or_, update

from adapters.storage.sql.rows import Mapper, held
from adapters.storage.sql.session import Session
from adapters.storage.sql.tables import api_keys
from domain.kernel.ids import AccountId, KeyId
from domain.keys.model import ApiKey

KEY = Mapper(api_keys, ApiKey)

_ID = api_keys.c.key_id == bindparam("at_id")
_ACCOUNT = api_keys.c.account_id == bindparam("at_account")
_USED = bindparam("at_used", type_=api_keys.c.last_used_ms.type)

ADD = insert(api_keys)
GET = KEY.select().where(_ID, _ACCOUNT)
HELD = held(GET)
BY_HASH = KEY.select().where(api_keys.c.secret_hash == bindparam("at_hash"))
LIST = KEY.select().where(_ACCOUNT).order_by(api_keys.c.seq)
SAVE = update(api_keys).where(_ID)
DELETE = delete(api_keys).where(_ID)
TOUCH = (
    update(api_keys)
    .where(_ID, or_(api_keys.c.last_used_ms.is_(None), api_keys.c.last_used_ms < _USED))
    .values(last_used_ms=_USED)
)


class SqlKeys:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, key: ApiKey) -> None:
        await self._session.write(ADD, **KEY.values(key))

    async def get(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return KEY.maybe(await self._session.read(GET, at_id=key_id, at_account=account_id))

    async def held(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return KEY.maybe(await self._session.read(HELD[self._session.writable], at_id=key_id, at_account=account_id))

    async def by_hash(self, secret_hash: bytes) -> ApiKey | None:
        return KEY.maybe(await self._session.read(BY_HASH, at_hash=secret_hash))

    async def list(self, account_id: AccountId) -> Sequence[ApiKey]:
        return [KEY.of(row) for row in await self._session.read(LIST, at_account=account_id)]

    async def save(self, key: ApiKey) -> None:
        await self._session.write(SAVE, at_id=key.key_id, **KEY.values(key, "key_id", "account_id", "created_ms"))

    async def delete(self, key_id: KeyId) -> None:
        await self._session.write(DELETE, at_id=key_id)

    async def touch(self, used: Mapping[KeyId, int]) -> None:
        await self._session.many(TOUCH, [{"at_id": key_id, "at_used": at_ms} for key_id, at_ms in used.items()])
