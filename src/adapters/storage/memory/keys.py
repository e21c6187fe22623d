"""API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from adapters.storage import refusals
from adapters.storage.memory.grants import drop_grants
from adapters.storage.memory.shelves import Book, Shelf
from adapters.storage.memory.webhooks import WEBHOOKS, drop_webhook
from domain.kernel.ids import AccountId, KeyId
from domain.keys.model import ApiKey

KEYS: Shelf[KeyId, ApiKey] = Shelf("keys")


class MemoryKeys:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, key: ApiKey) -> None:
        if await self.by_hash(key.secret_hash) is not None:
            raise refusals.duplicate()
        self._book.edit(KEYS)[key.key_id] = key

    async def get(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        key = self._book.rows(KEYS).get(key_id)
        return key if key is not None and key.account_id == account_id else None

    async def held(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        return await self.get(account_id, key_id)

    async def by_hash(self, secret_hash: bytes) -> ApiKey | None:
        return next((key for key in self._book.rows(KEYS).values() if key.secret_hash == secret_hash), None)

    async def list(self, account_id: AccountId) -> Sequence[ApiKey]:
        return [key for key in self._book.rows(KEYS).values() if key.account_id == account_id]

    async def save(self, key: ApiKey) -> None:
        rows = self._book.edit(KEYS)
        if key.key_id in rows:
            rows[key.key_id] = key

    async def delete(self, key_id: KeyId) -> None:
        drop_grants(self._book, lambda grant: grant.subject.key_id == key_id)
        for webhook in list(self._book.rows(WEBHOOKS).values()):
            if webhook.key_id == key_id:
                drop_webhook(self._book, webhook.webhook_id)
        self._book.drop(KEYS, [key_id])

    async def touch(self, used: Mapping[KeyId, int]) -> None:
        rows = self._book.edit(KEYS)
        for key_id, at_ms in used.items():
            key = rows.get(key_id)
            if key is not None and at_ms > (key.last_used_ms or 0):
                rows[key_id] = replace(key, last_used_ms=at_ms)
