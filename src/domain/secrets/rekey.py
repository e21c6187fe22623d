"""Stored secrets under the newest key of the ring: MQTT passwords of devices and signing secrets of webhooks.

A bounded page at a time, each its own transaction, so that a service that runs meanwhile waits for one page at most and a crash
loses one page's work at most: what has been done is known by the secrets themselves. A secret that somebody changes at the same
moment is left to them. A page may be looked at without changing it, to learn which keys are still needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from domain.devices.ports import HasDeviceCredentials, Vault
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId, WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import HasWebhooks

PAGE_SECRETS = 200
"""Some 2 ms of AES, and as many one-row updates."""


class RekeyTx(HasDeviceCredentials, HasWebhooks, Protocol): ...


@dataclass(slots=True)
class RekeyReport:
    """`resealed`: now under the newest key. `unreadable`: no key of the ring opens them; they are named and left as they are."""

    checked: int = 0
    rekeyed: int = 0
    unreadable: list[str] = field(default_factory=list)
    by_key: Counter[str] = field(default_factory=Counter)
    """How many secrets were found under each key, by its id."""


@dataclass(frozen=True, slots=True)
class _SealedSecret:
    owner: str
    sealed: bytes = field(repr=False)


class RekeyService:
    def __init__(self, *, uow: UnitOfWork[RekeyTx], vault: Vault, key_of: Callable[[bytes], str]) -> None:
        """`key_of`: the id of the key a secret was sealed under."""
        self._uow = uow
        self._vault = vault
        self._key_id_of = key_of

    async def count_secrets(self) -> int:
        async with self._uow.read() as tx:
            return await tx.credentials.count() + await tx.webhooks.count()

    async def survey(self) -> RekeyReport:
        """Changes nothing."""
        return await self.run(lambda seen: None, look_only=True)

    async def run(self, progress: Callable[[int], None], *, look_only: bool = False) -> RekeyReport:
        """Every secret once; `progress` hears how many have been seen. Raises Unavailable when the database does not answer."""
        tally = RekeyReport()
        for step in (self._rekey_credentials, self._rekey_webhooks):
            after: str | None = None
            while (after := await step(after, tally, look_only)) is not None:
                progress(tally.checked)
        progress(tally.checked)
        return tally

    async def _rekey_credentials(self, after: str | None, tally: RekeyReport, look_only: bool) -> str | None:
        async with self._uow.read() if look_only else self._uow.write(caller=None) as tx:
            page = await tx.credentials.page(None if after is None else DeviceId(after), PAGE_SECRETS)
            secrets = [_SealedSecret(found.device_id, found.sealed) for found in page]
            for owner, before, sealed in self._reencrypt_outdated(secrets, tally, look_only):
                tally.rekeyed += await tx.credentials.rekey(DeviceId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE_SECRETS else None

    async def _rekey_webhooks(self, after: str | None, tally: RekeyReport, look_only: bool) -> str | None:
        async with self._uow.read() if look_only else self._uow.write(caller=None) as tx:
            page = await tx.webhooks.list_page(None if after is None else WebhookId(after), PAGE_SECRETS)
            secrets = [_SealedSecret(found.webhook_id, found.sealed_secret) for found in page]
            for owner, before, sealed in self._reencrypt_outdated(secrets, tally, look_only):
                tally.rekeyed += await tx.webhooks.rekey(WebhookId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE_SECRETS else None

    def _reencrypt_outdated(
        self, secrets: list[_SealedSecret], tally: RekeyReport, look_only: bool
    ) -> Iterator[tuple[str, bytes, bytes]]:
        """(owner, before, after) of those that are to change."""
        for secret in secrets:
            tally.checked += 1
            try:
                tally.by_key[self._key_id_of(secret.sealed)] += 1
                if look_only or not self._vault.needs_rekey(secret.sealed):
                    continue
                yield secret.owner, secret.sealed, self._vault.seal(self._vault.open(secret.sealed, secret.owner), secret.owner)
            except Unavailable:
                tally.unreadable.append(secret.owner)
