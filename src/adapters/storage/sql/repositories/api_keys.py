"""API keys. Deleting a key deletes its grants and webhooks by foreign key."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, or_, update

from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlAccountEntityRepository
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.sql_session_port import LOOK_UP
from adapters.storage.sql.tables import api_keys
from domain.kernel.ids import AccountId, KeyId
from domain.keys.model import ApiKey

API_KEY = RowMapper(api_keys, ApiKey, cached=1_024)

_USED_MS = bindparam("at_used", type_=api_keys.c.last_used_ms.type)

KEYS = AccountEntityStatements(
    API_KEY, "key_id", unchanged=("account_id", "created_ms"), lock=lambda one: {False: one, True: one.with_for_update()}
)
"""FOR UPDATE, not NO KEY UPDATE: it waits for the transactions that hold the key FOR KEY SHARE (`caller_recheck.py`)."""
GET_FOR_SHARE = {False: KEYS.get[False], True: KEYS.get[False].with_for_update(read=True, key_share=True)}
FIND_BY_HASH = API_KEY.select().where(api_keys.c.secret_hash == bindparam("at_hash")).execution_options(**LOOK_UP)
TOUCH = (
    update(api_keys)
    .where(KEYS.is_id, or_(api_keys.c.last_used_ms.is_(None), api_keys.c.last_used_ms < _USED_MS))
    .values(last_used_ms=_USED_MS)
)


class SqlApiKeyRepository(SqlAccountEntityRepository[ApiKey]):
    statements = KEYS

    async def get_for_share(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        statement = GET_FOR_SHARE[self._session.writable]
        return await self._first(API_KEY, statement, at_id=key_id, at_account=account_id)

    async def find_by_hash(self, secret_hash: bytes) -> ApiKey | None:
        return await self._first(API_KEY, FIND_BY_HASH, at_hash=secret_hash)

    async def update_last_used(self, used: Mapping[KeyId, int]) -> None:
        await self._session.execute_many(TOUCH, [{"at_id": key_id, "at_used": used[key_id]} for key_id in sorted(used)])
