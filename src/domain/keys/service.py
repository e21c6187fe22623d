"""Create, update and delete API keys. The secret is shown once; only its hash is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from domain.accounts.policy import check_name
from domain.accounts.ports import PendingApprovalCloserPort
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import check_capacity
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import NotFound
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, KeyId, has_id_format
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import RANDOM_LENGTH, ApiKey, compose_key, display_prefix
from domain.keys.ports import KeysTx
from domain.sign_in.ports import TokenHasher
from domain.sign_in.presence import require_fresh_proof


@dataclass(frozen=True, slots=True)
class CreatedApiKey:
    """`secret` is returned once and not stored."""

    key: ApiKey
    secret: str


TxT = TypeVar("TxT", bound=KeysTx)


@service
class ApiKeyService(Generic[TxT]):
    uow: UnitOfWork[TxT]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    requests: PendingApprovalCloserPort[TxT]

    async def list(self, caller: SessionCaller) -> Sequence[ApiKey]:
        async with self.uow.read() as tx:
            return await tx.api_keys.list_by_account(caller.account_id)

    async def create(self, caller: SessionCaller, name: str) -> CreatedApiKey:
        """Raises PermissionDenied `ROLE_REQUIRED`, `STEP_UP_REQUIRED`; Conflict `KEY_LIMIT`."""
        require_role(caller, Role.ADMIN)
        secret = compose_key(self.ids.random_alphanumeric(RANDOM_LENGTH))
        now_ms = self.clock.now_ms()
        key = ApiKey(
            key_id=KeyId(self.ids.new_id(IdPrefix.KEY)),
            account_id=caller.account_id,
            name=check_name(name),
            prefix=display_prefix(secret),
            secret_hash=self.digest.sha256(secret),
            enabled=True,
            last_used_ms=None,
            created_ms=now_ms,
            created_by=caller.label,
        )
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            existing = await tx.api_keys.list_by_account(caller.account_id)
            check_capacity(len(existing), "KEY_LIMIT", "An account has at most {limit} API keys")
            await tx.api_keys.add(key)
            tx.emit(event_of(caller, "key_created", f"API key {key.name} ({key.prefix}…) was created", self.clock.now_ms()))
        return CreatedApiKey(key, secret)

    async def update(self, caller: SessionCaller, key_id: str, *, name: str | None = None, enabled: bool | None = None) -> None:
        """A disabled key is rejected from the next call on; to enable one is to make it again. Raises NotFound; PermissionDenied
        `STEP_UP_REQUIRED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            key = await get_api_key(tx, caller, key_id, held=True)
            changed = replace(
                key, name=key.name if name is None else check_name(name), enabled=key.enabled if enabled is None else enabled
            )
            if changed == key:
                return
            is_enabled_now = changed.enabled and not key.enabled
            if is_enabled_now:
                await require_fresh_proof(tx, caller, now_ms)
            await tx.api_keys.save(changed)
            state = "enabled" if changed.enabled else "disabled"
            kind: EventKind = "key_enabled" if is_enabled_now else "key_changed"
            tx.emit(event_of(caller, kind, f"API key {changed.name} ({key.prefix}…) is {state}", now_ms))

    async def delete(self, caller: SessionCaller, key_id: str) -> None:
        """Also deletes its grants and webhooks, and ends its requests that wait for approval. Raises NotFound."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            key = await get_api_key(tx, caller, key_id, held=True)
            await self.requests.close_requests(tx, caller, self.clock.now_ms(), key_id=key.key_id)
            await tx.api_keys.delete(key.key_id)
            tx.emit(event_of(caller, "key_deleted", f"API key {key.name} ({key.prefix}…) was deleted", self.clock.now_ms()))


async def get_api_key(tx: KeysTx, caller: SessionCaller, key_id: str, *, held: bool = False) -> ApiKey:
    """Raises NotFound, also for a key of another account."""
    find = tx.api_keys.get_for_update if held else tx.api_keys.get
    key = await find(caller.account_id, KeyId(key_id)) if has_id_format(IdPrefix.KEY, key_id) else None
    if key is None:
        raise NotFound.for_resource("API key", key_id)
    return key
