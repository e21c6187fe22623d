"""Re-encrypts stored secrets with the newest key of the ring: MQTT passwords of devices, signing secrets and URLs of webhooks,
secrets of authenticator apps, destinations of notifications, secrets of the installation, and the responses of idempotent
requests.

It works in bounded pages, each in a transaction of its own. So a running service waits for at most one page, and a crash repeats
at most one page: each secret shows which key it is encrypted with. A secret that changes at the same moment is left as it is. A
survey reads the pages without a change, to find out which keys are still needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from domain.kernel.errors import Unavailable
from domain.kernel.idempotency import StoredResponse
from domain.kernel.ids import ChannelId, DeviceId, UserId, WebhookId
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.notifications.ports import NotificationsTx
from domain.webhooks.model import url_seal_context
from domain.webhooks.ports import WebhooksTx

PAGE_SECRETS = 200
"""About 2 ms of AES, and as many one-row updates."""


class RekeyTx(WebhooksTx, NotificationsTx, Protocol): ...


@dataclass(slots=True)
class RekeyReport:
    """`rekeyed`: secrets that are now under the newest key. `unreadable`: the owners of secrets that no key of the ring opens;
    these are left as they are."""

    checked: int = 0
    rekeyed: int = 0
    unreadable: list[str] = field(default_factory=list)
    by_key: Counter[str] = field(default_factory=Counter)
    """How many secrets were found under each key, by its id."""


@dataclass(frozen=True, slots=True)
class _SecretToReencrypt:
    owner: str
    sealed: bytes = field(repr=False)


class RekeyService:
    def __init__(self, *, uow: UnitOfWork[RekeyTx], vault: Vault, key_of: Callable[[bytes], str]) -> None:
        """`key_of` returns the id of the key that a secret is encrypted with."""
        self._uow = uow
        self._vault = vault
        self._key_id_of = key_of

    async def count_secrets(self) -> int:
        async with self._uow.read() as tx:
            counts = [await tx.credentials.count(), await tx.webhooks.count_sealed(), await tx.second_factors.count_totp()]
            counts += [await tx.notification_channels.count_sealed(), len(await tx.service_secrets.list_all())]
            return sum(counts) + await tx.stored_responses.count()

    async def survey(self) -> RekeyReport:
        """Counts the secrets under each key, without a change."""
        return await self.run(lambda checked: None, read_only=True)

    async def run(self, progress: Callable[[int], None], *, read_only: bool = False) -> RekeyReport:
        """Processes every secret once; `progress` receives the number checked so far.

        Raises Unavailable when the database does not respond."""
        report = RekeyReport()
        for rekey_page in (
            self._rekey_credentials,
            self._rekey_webhooks,
            self._rekey_totp_secrets,
            self._rekey_channels,
            self._rekey_service_secrets,
        ):
            after: str | None = None
            while (after := await rekey_page(after, report, read_only)) is not None:
                progress(report.checked)
        last: StoredResponse | None = None
        while (last := await self._rekey_responses(last, report, read_only)) is not None:
            progress(report.checked)
        progress(report.checked)
        return report

    async def _rekey_credentials(self, after: str | None, report: RekeyReport, read_only: bool) -> str | None:
        async with self._uow.read() if read_only else self._uow.write(caller=None) as tx:
            page = await tx.credentials.page(None if after is None else DeviceId(after), PAGE_SECRETS)
            secrets = [_SecretToReencrypt(found.device_id, found.sealed) for found in page]
            for owner, before, sealed in self._reencrypt_outdated(secrets, report, read_only):
                report.rekeyed += await tx.credentials.rekey(DeviceId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE_SECRETS else None

    async def _rekey_webhooks(self, after: str | None, report: RekeyReport, read_only: bool) -> str | None:
        async with self._uow.read() if read_only else self._uow.write(caller=None) as tx:
            page = await tx.webhooks.list_page(None if after is None else WebhookId(after), PAGE_SECRETS)
            secrets = [_SecretToReencrypt(found.webhook_id, found.sealed_secret) for found in page]
            for owner, before, sealed in self._reencrypt_outdated(secrets, report, read_only):
                report.rekeyed += await tx.webhooks.rekey(WebhookId(owner), before, sealed)
            by_context = {url_seal_context(found.webhook_id): found for found in page}
            urls = [
                _SecretToReencrypt(owner, found.sealed_url) for owner, found in by_context.items() if found.sealed_url is not None
            ]
            for owner, before, sealed in self._reencrypt_outdated(urls, report, read_only):
                report.rekeyed += await tx.webhooks.rekey_url(by_context[owner].webhook_id, before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE_SECRETS else None

    async def _rekey_responses(self, after: StoredResponse | None, report: RekeyReport, read_only: bool) -> StoredResponse | None:
        async with self._uow.read() if read_only else self._uow.write(caller=None) as tx:
            page = await tx.stored_responses.page(after, PAGE_SECRETS)
            by_owner = {found.seal_context: found for found in page}
            secrets = [_SecretToReencrypt(owner, found.body) for owner, found in by_owner.items()]
            for owner, _, sealed in self._reencrypt_outdated(secrets, report, read_only):
                report.rekeyed += await tx.stored_responses.rekey(by_owner[owner], sealed)
        return page[-1] if len(page) == PAGE_SECRETS else None

    async def _rekey_totp_secrets(self, after: str | None, report: RekeyReport, read_only: bool) -> str | None:
        async with self._uow.read() if read_only else self._uow.write(caller=None) as tx:
            page = await tx.second_factors.list_totp_page(None if after is None else UserId(after), PAGE_SECRETS)
            secrets = [_SecretToReencrypt(found.user_id, found.sealed) for found in page]
            for owner, before, sealed in self._reencrypt_outdated(secrets, report, read_only):
                report.rekeyed += await tx.second_factors.rekey_totp(UserId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE_SECRETS else None

    async def _rekey_channels(self, after: str | None, report: RekeyReport, read_only: bool) -> str | None:
        async with self._uow.read() if read_only else self._uow.write(caller=None) as tx:
            page = await tx.notification_channels.list_sealed_page(None if after is None else ChannelId(after), PAGE_SECRETS)
            secrets = [_SecretToReencrypt(found.channel_id, found.sealed or b"") for found in page]
            for owner, before, sealed in self._reencrypt_outdated(secrets, report, read_only):
                report.rekeyed += await tx.notification_channels.rekey(ChannelId(owner), before, sealed)
        return secrets[-1].owner if len(secrets) == PAGE_SECRETS else None

    async def _rekey_service_secrets(self, after: str | None, report: RekeyReport, read_only: bool) -> None:
        """A handful; always one page."""
        async with self._uow.read() if read_only else self._uow.write(caller=None) as tx:
            secrets = [_SecretToReencrypt(name, sealed) for name, sealed in await tx.service_secrets.list_all()]
            for name, before, sealed in self._reencrypt_outdated(secrets, report, read_only):
                report.rekeyed += await tx.service_secrets.rekey(name, before, sealed)

    def _reencrypt_outdated(
        self, secrets: list[_SecretToReencrypt], report: RekeyReport, read_only: bool
    ) -> Iterator[tuple[str, bytes, bytes]]:
        """(owner, old value, new value) of the secrets that need the newest key."""
        for secret in secrets:
            report.checked += 1
            try:
                report.by_key[self._key_id_of(secret.sealed)] += 1
                if read_only or not self._vault.needs_rekey(secret.sealed):
                    continue
                yield secret.owner, secret.sealed, self._vault.seal(self._vault.open(secret.sealed, secret.owner), secret.owner)
            except Unavailable:
                report.unreadable.append(secret.owner)
