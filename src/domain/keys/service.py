"""Making, changing and ending API keys. A key is shown once; what is kept cannot be turned back into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.accounts.policy import check_name
from domain.accounts.ports import Digest
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import NotFound
from domain.kernel.facts import EventKind, Fact
from domain.kernel.ids import IdSource, KeyId, Prefix, looks_like
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import ApiKey
from domain.keys.policy import RANDOM_LENGTH, compose_key, shown_prefix
from domain.keys.ports import KeysTx


@dataclass(frozen=True, slots=True)
class MadeKey:
    """`secret` exists only here; it is shown and forgotten."""

    key: ApiKey
    secret: str


class KeyService:
    def __init__(self, *, uow: UnitOfWork[KeysTx], clock: Clock, ids: IdSource, digest: Digest) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._digest = digest

    async def list(self, caller: Session) -> Sequence[ApiKey]:
        async with self._uow.read() as tx:
            return await tx.keys.list(caller.account_id)

    async def create(self, caller: Session, name: str) -> MadeKey:
        require_role(caller, Role.ADMIN)
        secret = compose_key(self._ids.password(RANDOM_LENGTH))
        now_ms = self._clock.now_ms()
        key = ApiKey(
            key_id=KeyId(self._ids.new(Prefix.KEY)),
            account_id=caller.account_id,
            name=check_name(name),
            prefix=shown_prefix(secret),
            secret_hash=self._digest.plain(secret),
            enabled=True,
            last_used_ms=None,
            created_ms=now_ms,
        )
        async with self._uow.write() as tx:
            await tx.keys.add(key)
            await self._record(tx, caller, "key_created", f"API key {key.name} ({key.prefix}…) was created")
        return MadeKey(key, secret)

    async def change(self, caller: Session, key_id: str, *, name: str | None = None, enabled: bool | None = None) -> None:
        """A disabled key is refused from the next call on. Raises NotFound."""
        require_role(caller, Role.ADMIN)
        async with self._uow.write() as tx:
            key = await find_key(tx, caller, key_id, held=True)
            changed = replace(
                key,
                name=key.name if name is None else check_name(name),
                enabled=key.enabled if enabled is None else enabled,
            )
            if changed == key:
                return
            await tx.keys.save(changed)
            state = "enabled" if changed.enabled else "disabled"
            await self._record(tx, caller, "key_changed", f"API key {changed.name} ({key.prefix}…) is {state}")

    async def delete(self, caller: Session, key_id: str) -> None:
        """Its grants and webhooks go with it. Raises NotFound."""
        require_role(caller, Role.ADMIN)
        async with self._uow.write() as tx:
            key = await find_key(tx, caller, key_id, held=True)
            await tx.keys.delete(key.key_id)
            await self._record(tx, caller, "key_deleted", f"API key {key.name} ({key.prefix}…) was deleted")

    async def _record(self, tx: KeysTx, caller: Session, kind: EventKind, description: str) -> None:
        now_ms = self._clock.now_ms()
        await tx.record(Fact(caller.account_id, kind, description, now_ms, caller.label, address=caller.address))


async def find_key(tx: KeysTx, caller: Session, key_id: str, *, held: bool = False) -> ApiKey:
    """Raises NotFound, also for a key of another account."""
    find = tx.keys.held if held else tx.keys.get
    key = await find(caller.account_id, KeyId(key_id)) if looks_like(Prefix.KEY, key_id) else None
    if key is None:
        raise NotFound.of("API key", key_id)
    return key
