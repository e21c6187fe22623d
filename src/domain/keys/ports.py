"""Ports of the keys part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from domain.kernel.ids import AccountId, KeyId
from domain.keys.model import ApiKey, KeyUse
from domain.oidc.ports import OidcTx


class ApiKeyRepository(Protocol):
    async def add(self, key: ApiKey) -> None: ...

    async def get(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None: ...

    async def get_for_update(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        """Like `get`, and locks the row until the write transaction ends. Required before `save`."""

    async def get_for_share(self, account_id: AccountId, key_id: KeyId) -> ApiKey | None:
        """Like `get`, and keeps the key as it is until the write transaction ends."""

    async def find_by_hash(self, secret_hash: bytes) -> ApiKey | None:
        """The key whose present secret has this hash."""

    async def find_by_previous_hash(self, secret_hash: bytes) -> ApiKey | None:
        """The key whose previous secret has this hash, also after the end of that secret."""

    async def list_by_account(self, account_id: AccountId) -> Sequence[ApiKey]:
        """Oldest first."""

    async def save(self, key: ApiKey) -> None: ...

    async def delete(self, key_id: KeyId) -> None:
        """Also deletes the key's grants and webhooks with their deliveries."""

    async def update_last_used(self, used: Mapping[KeyId, KeyUse]) -> None:
        """Set the last use of many keys, unless a later one is stored; unknown keys are ignored."""


class KeysTx(OidcTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def api_keys(self) -> ApiKeyRepository: ...
