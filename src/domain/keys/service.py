"""Create, update, rotate and delete API keys. The secret is shown once; only its hash is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypedDict, TypeVar, Unpack

from domain.accounts.policy import check_name
from domain.accounts.ports import PendingApprovalCloserPort
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import check_capacity
from domain.kernel.clock import SECOND_MS, Clock, to_iso
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import NotFound, ValidationFailed
from domain.kernel.ids import AccountId, IdAndSecretGenerator, IdPrefix, KeyId, has_id_format
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import (
    DEFAULT_OVERLAP_S,
    MAX_OVERLAP_S,
    RANDOM_LENGTH,
    ApiKey,
    are_networks_wider,
    check_networks,
    compose_key,
    display_prefix,
)
from domain.keys.ports import KeysTx
from domain.sign_in.ports import TokenHasher
from domain.sign_in.presence import require_fresh_proof


@dataclass(frozen=True, slots=True)
class CreatedApiKey:
    """`secret` is returned once and not stored."""

    key: ApiKey
    secret: str


class ApiKeyLimits(TypedDict, total=False):
    """`expires_ms`: None for no end. `allowed_networks`: none for everywhere."""

    expires_ms: int | None
    allowed_networks: Sequence[str]


class ApiKeyChanges(ApiKeyLimits, total=False):
    name: str
    enabled: bool


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

    async def get(self, caller: SessionCaller, key_id: str) -> ApiKey:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            return await get_api_key(tx, caller, key_id)

    async def create(self, caller: SessionCaller, name: str, **limits: Unpack[ApiKeyLimits]) -> CreatedApiKey:
        """Raises ValidationFailed; PermissionDenied `ROLE_REQUIRED`, `STEP_UP_REQUIRED`; Conflict `KEY_LIMIT`."""
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
            expires_ms=_check_end(limits.get("expires_ms"), now_ms),
            allowed_networks=check_networks(limits.get("allowed_networks", ())),
        )
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            existing = await tx.api_keys.list_by_account(caller.account_id)
            check_capacity(len(existing), "KEY_LIMIT", "An account has at most {limit} API keys")
            await tx.api_keys.add(key)
            tx.emit(event_of(caller, "key_created", f"API key {key.name} ({key.prefix}…) was created", self.clock.now_ms()))
        return CreatedApiKey(key, secret)

    async def update(self, caller: SessionCaller, key_id: str, **changes: Unpack[ApiKeyChanges]) -> None:
        """A disabled key is rejected from the next call on. To enable one, to let it last longer or be used from more networks is
        to make it again. Raises NotFound; ValidationFailed; PermissionDenied `STEP_UP_REQUIRED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            key = await get_api_key(tx, caller, key_id, held=True)
            changed = _apply(key, changes, now_ms)
            if changed == key:
                return
            described = list(_describe(changed, key))
            if any(is_wider for is_wider, _ in described):
                await require_fresh_proof(tx, caller, now_ms)
            await tx.api_keys.save(changed)
            for is_wider, text in described:
                kind: EventKind = "key_enabled" if is_wider else "key_changed"
                tx.emit(event_of(caller, kind, text, now_ms))

    async def rotate(self, caller: SessionCaller, key_id: str, overlap_s: int = DEFAULT_OVERLAP_S) -> CreatedApiKey:
        """A new secret for the key, which stays the same otherwise. The present one works for `overlap_s` seconds more, an older
        one no longer. Raises NotFound; ValidationFailed; PermissionDenied `STEP_UP_REQUIRED`."""
        require_role(caller, Role.ADMIN)
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise ValidationFailed.for_field("overlapSeconds", f"must be from 0 to {MAX_OVERLAP_S}.")
        secret = compose_key(self.ids.random_alphanumeric(RANDOM_LENGTH))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            key = await get_api_key(tx, caller, key_id, held=True)
            await require_fresh_proof(tx, caller, now_ms)
            rotated = replace(
                key,
                prefix=display_prefix(secret),
                secret_hash=self.digest.sha256(secret),
                previous_hash=key.secret_hash if overlap_s else None,
                previous_prefix=key.prefix if overlap_s else None,
                previous_expires_ms=now_ms + overlap_s * SECOND_MS if overlap_s else None,
            )
            await tx.api_keys.save(rotated)
            name, new, ends_ms = key.name, rotated.prefix, rotated.previous_expires_ms
            text = f"API key {name} ({new}…) has a new secret; the old one ({key.prefix}…) has ended"
            if ends_ms is not None:
                text = f"API key {name} ({new}…) has a new secret; the old one ({key.prefix}…) works until {to_iso(ends_ms)}"
            tx.emit(event_of(caller, "key_rotated", text, now_ms))
        return CreatedApiKey(rotated, secret)

    async def delete(self, caller: SessionCaller, key_id: str) -> None:
        """Also deletes its grants and webhooks, and ends its requests that wait for approval. Raises NotFound."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            key = await get_api_key(tx, caller, key_id, held=True)
            await self.requests.close_requests(tx, caller, self.clock.now_ms(), key_id=key.key_id)
            await tx.api_keys.delete(key.key_id)
            tx.emit(event_of(caller, "key_deleted", f"API key {key.name} ({key.prefix}…) was deleted", self.clock.now_ms()))


def _apply(key: ApiKey, changes: ApiKeyChanges, now_ms: int) -> ApiKey:
    changed = key
    if "name" in changes:
        changed = replace(changed, name=check_name(changes["name"]))
    if "enabled" in changes:
        changed = replace(changed, enabled=changes["enabled"])
    if "expires_ms" in changes and changes["expires_ms"] != key.expires_ms:
        changed = replace(changed, expires_ms=_check_end(changes["expires_ms"], now_ms))
    if "allowed_networks" in changes:
        changed = replace(changed, allowed_networks=check_networks(changes["allowed_networks"]))
    return changed


def _check_end(expires_ms: int | None, now_ms: int) -> int | None:
    if expires_ms is not None and expires_ms <= now_ms:
        raise ValidationFailed.for_field(
            "expiresAt", "is in the past; give a later time, or null for a key without an end. To end it now, disable it."
        )
    return expires_ms


def _describe(after: ApiKey, before: ApiKey) -> Iterator[tuple[bool, str]]:
    """What events say of the change, each with whether the key may do what it could not do before."""
    name, prefix = after.name, after.prefix
    if (after.name, after.enabled) != (before.name, before.enabled):
        yield after.enabled and not before.enabled, f"API key {name} ({prefix}…) is {'enabled' if after.enabled else 'disabled'}"
    if after.expires_ms is None and before.expires_ms is not None:
        yield True, f"API key {name} ({prefix}…) has no end any more"
    elif after.expires_ms is not None and after.expires_ms != before.expires_ms:
        is_later = before.expires_ms is not None and after.expires_ms > before.expires_ms
        yield is_later, f"API key {name} ({prefix}…) ends at {to_iso(after.expires_ms)}"
    if after.allowed_networks != before.allowed_networks:
        is_wider = are_networks_wider(after.allowed_networks, before.allowed_networks)
        text = f"API key {name} ({prefix}…) may be used from everywhere"
        if after.allowed_networks:
            text = f"API key {name} ({prefix}…) may be used from {', '.join(after.allowed_networks)}"
        yield is_wider, text


async def referenced_api_key(tx: KeysTx, account_id: AccountId, key_id: str, field: str) -> ApiKey:
    """The key that the field of a request names. Raises ValidationFailed, also for a key of another account."""
    key = await tx.api_keys.get(account_id, KeyId(key_id)) if has_id_format(IdPrefix.KEY, key_id) else None
    if key is None:
        raise ValidationFailed.for_field(field, f"there is no API key {key_id!r} in this account. GET /keys lists them.")
    return key


async def get_api_key(tx: KeysTx, caller: SessionCaller, key_id: str, *, held: bool = False) -> ApiKey:
    """Raises NotFound, also for a key of another account."""
    find = tx.api_keys.get_for_update if held else tx.api_keys.get
    key = await find(caller.account_id, KeyId(key_id)) if has_id_format(IdPrefix.KEY, key_id) else None
    if key is None:
        raise NotFound.for_resource("API key", key_id)
    return key
