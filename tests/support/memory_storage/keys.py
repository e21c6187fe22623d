"""API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain.kernel.errors import Conflict
from domain.kernel.ids import AccountId, KeyId
from domain.keys.model import ApiKey, KeyUse
from support.memory_storage.grants import delete_grants
from support.memory_storage.tables import Database, Table
from support.memory_storage.webhooks import WEBHOOKS, delete_webhook

API_KEYS: Table[KeyId, ApiKey] = Table("keys")


class MemoryApiKeyRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey) -> None:
        if await self.find_by_hash(key.secret_hash) is not None:
            raise Conflict("This already exists. Fetch the existing one and change that.")
        self._database.writable_rows(API_KEYS)[key.key_id] = key

    async def get(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        key = self._database.rows(API_KEYS).get(key_id)
        return key if key is not None and key.account_id == account_id else None

    async def get_for_update(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return await self.get(account_id, key_id)

    async def get_for_share(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return await self.get(account_id, key_id)

    async def find_by_hash(self, secret_hash: bytes) -> ApiKey | None:
        return next((key for key in self._database.rows(API_KEYS).values() if key.secret_hash == secret_hash), None)

    async def find_by_previous_hash(self, secret_hash: bytes) -> ApiKey | None:
        return next((key for key in self._database.rows(API_KEYS).values() if key.previous_hash == secret_hash), None)

    async def list_by_account(self, account_id: AccountId) -> Sequence[ApiKey]:
        return [key for key in self._database.rows(API_KEYS).values() if key.account_id == account_id]

    async def save(self, key: ApiKey) -> None:
        rows = self._database.writable_rows(API_KEYS)
        if key.key_id in rows:
            rows[key.key_id] = key

    async def delete(self, key_id: KeyId) -> None:
        delete_grants(self._database, lambda grant: grant.subject.key_id == key_id)
        for webhook in list(self._database.rows(WEBHOOKS).values()):
            if webhook.key_id == key_id:
                delete_webhook(self._database, webhook.webhook_id)
        self._database.delete(API_KEYS, [key_id])

    async def update_last_used(self, used: Mapping[KeyId, KeyUse]) -> None:
        rows = self._database.writable_rows(API_KEYS)
        for key_id, use in used.items():
            key = rows.get(key_id)
            if key is not None and use.at_ms > (key.last_used_ms or 0):
                rows[key_id] = replace(key, last_used_ms=use.at_ms, last_used_prefix=use.prefix)
