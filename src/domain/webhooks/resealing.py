"""Stored secrets under the newest key of the ring: MQTT passwords of devices and signing secrets of webhooks.

A bounded page at a time, each its own transaction, so that a service that runs meanwhile waits for one page at most and a crash
loses one page's work at most: what has been done is known by the secrets themselves. A secret that somebody changes at the same
moment is left to them. A page may be looked at without changing it, to learn which keys are still needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from domain.devices.ports import Vault
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId, WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import WebhooksTx

PAGE = 200
"""Some 2 ms of AES, and as many one-row updates."""


@dataclass(slots=True)
class Tally:
    """`resealed`: now under the newest key. `unreadable`: no key of the ring opens them; they are named and left as they are."""

    seen: int = 0
    resealed: int = 0
    unreadable: list[str] = field(default_factory=list)
    by_key: Counter[str] = field(default_factory=Counter)
    """How many secrets were found under each key, by its id."""


@dataclass(frozen=True, slots=True)
class _Secret:
    owner: str
    sealed: bytes = field(repr=False)


class ResealingService:
    def __init__(self, *, uow: UnitOfWork[WebhooksTx], vault: Vault, key_of: Callable[[bytes], str]) -> None:
        """`key_of`: the id of the key a secret was sealed under."""
        self._uow = uow
        self._vault = vault
        self._key_of = key_of

    async def total(self) -> int:
        async with self._uow.read() as tx:
            return await tx.credentials.count() + await tx.webhooks.count()

    async def survey(self) -> Tally:
        """Changes nothing."""
        return await self.run(lambda seen: None, look_only=True)

    async def run(self, progress: Callable[[int], None], *, look_only: bool = False) -> Tally:
        """Every secret once; `progress` hears how many have been seen. Raises Unavailable when the database does not answer."""
        tally = Tally()
        for step in (self._credentials, self._webhooks):
            after: str | None = None
            while (after := await step(after, tally, look_only)) is not None:
                progress(tally.seen)
        progress(tally.seen)
        return tally

    async def _credentials(self, after: str | None, tally: Tally, look_only: bool) -> str | None:
        async with self._uow.read() if look_only else self._uow.write() as tx:
            page = await tx.credentials.page(None if after is None else DeviceId(after), PAGE)
            secrets = [_Secret(found.device_id, found.sealed) for found in page]
            for owner, before, sealed in self._fresh(secrets, tally, look_only):
                tally.resealed += await tx.credentials.reseal(DeviceId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE else None

    async def _webhooks(self, after: str | None, tally: Tally, look_only: bool) -> str | None:
        async with self._uow.read() if look_only else self._uow.write() as tx:
            page = await tx.webhooks.page(None if after is None else WebhookId(after), PAGE)
            secrets = [_Secret(found.webhook_id, found.sealed_secret) for found in page]
            for owner, before, sealed in self._fresh(secrets, tally, look_only):
                tally.resealed += await tx.webhooks.reseal(WebhookId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE else None

    def _fresh(self, secrets: list[_Secret], tally: Tally, look_only: bool) -> Iterator[tuple[str, bytes, bytes]]:
        """(owner, before, after) of those that are to change."""
        for secret in secrets:
            tally.seen += 1
            try:
                tally.by_key[self._key_of(secret.sealed)] += 1
                if look_only or not self._vault.outdated(secret.sealed):
                    continue
                yield secret.owner, secret.sealed, self._vault.seal(self._vault.open(secret.sealed, secret.owner), secret.owner)
            except Unavailable:
                tally.unreadable.append(secret.owner)
