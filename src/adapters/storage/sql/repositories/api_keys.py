"""API keys. Deleting a key deletes its grants and webhooks by foreign key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, insert, or_, update

from adapters.storage.sql.db_session import LOOK_UP, DbSession
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.tables import api_keys
from domain.kernel.ids import AccountId, KeyId
from domain.keys.model import ApiKey

API_KEY = RowMapper(api_keys, ApiKey)

_ID = api_keys.c.key_id == bindparam("at_id")
_ACCOUNT = api_keys.c.account_id == bindparam("at_account")
_USED_MS = bindparam("at_used", type_=api_keys.c.last_used_ms.type)

ADD = insert(api_keys)
GET = API_KEY.select().where(_ID, _ACCOUNT)
GET_FOR_UPDATE = {False: GET, True: GET.with_for_update()}
"""FOR UPDATE, not NO KEY UPDATE: it waits for the transactions that hold the key FOR KEY SHARE (`caller_recheck.py`)."""
GET_FOR_SHARE = {False: GET, True: GET.with_for_update(read=True, key_share=True)}
FIND_BY_HASH = API_KEY.select().where(api_keys.c.secret_hash == bindparam("at_hash")).execution_options(**LOOK_UP)
LIST = API_KEY.select().where(_ACCOUNT).order_by(api_keys.c.seq)
SAVE = update(api_keys).where(_ID)
DELETE = delete(api_keys).where(_ID)
TOUCH = (
    update(api_keys)
    .where(_ID, or_(api_keys.c.last_used_ms.is_(None), api_keys.c.last_used_ms < _USED_MS))
    .values(last_used_ms=_USED_MS)
)


class SqlApiKeyRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, key: ApiKey) -> None:
        await self._session.write(ADD, **API_KEY.values(key))

    async def get(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return API_KEY.first_or_none(await self._session.read(GET, at_id=key_id, at_account=account_id))

    async def get_for_update(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return API_KEY.first_or_none(
            await self._session.read(GET_FOR_UPDATE[self._session.writable], at_id=key_id, at_account=account_id)
        )

    async def get_for_share(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        statement = GET_FOR_SHARE[self._session.writable]
        return API_KEY.first_or_none(await self._session.read(statement, at_id=key_id, at_account=account_id))

    async def find_by_hash(self, secret_hash: bytes) -> ApiKey | None:
        return API_KEY.first_or_none(await self._session.read(FIND_BY_HASH, at_hash=secret_hash))

    async def list_by_account(self, account_id: AccountId) -> Sequence[ApiKey]:
        return [API_KEY.from_row(row) for row in await self._session.read(LIST, at_account=account_id)]

    async def save(self, key: ApiKey) -> None:
        await self._session.write(SAVE, at_id=key.key_id, **API_KEY.values(key, "key_id", "account_id", "created_ms"))

    async def delete(self, key_id: KeyId) -> None:
        await self._session.write(DELETE, at_id=key_id)

    async def update_last_used(self, used: Mapping[KeyId, int]) -> None:
        await self._session.execute_many(TOUCH, [{"at_id": key_id, "at_used": used[key_id]} for key_id in sorted(used)])
