"""Re-encrypts stored secrets with the newest key of the ring: MQTT passwords of devices, signing secrets and URLs of webhooks,
secrets of authenticator apps, destinations of notifications, secrets of the installation, and the responses of idempotent
requests.

It works in bounded pages, each in a transaction of its own. So a running service waits for at most one page, and a crash repeats
at most one page: each secret shows which key it is encrypted with. A secret that changes at the same moment is left as it is. A
survey reads the pages without a change, to find out which keys are still needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from domain.devices.model import DeviceCredentials
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.idempotency import StoredResponse
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.notifications.model import NotificationChannel
from domain.notifications.ports import NotificationsTx
from domain.sign_in.model import TotpEnrollment
from domain.webhooks.model import Webhook, url_seal_context
from domain.webhooks.ports import WebhooksTx

T = TypeVar("T")

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
class _Secret:
    """`owner`: what it is bound to. `replace` stores another ciphertext if this one is still stored; the number of rows."""

    owner: str
    sealed: bytes = field(repr=False)
    replace: Callable[[bytes], Awaitable[int]]


@service
class RekeyService:
    """`key_of` returns the id of the key that a secret is encrypted with."""

    uow: UnitOfWork[RekeyTx]
    vault: Vault
    key_of: Callable[[bytes], str]

    async def count_secrets(self) -> int:
        async with self.uow.read() as tx:
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
        for read_page in _PAGES:
            last: Any = None
            while (last := await self._rekey_page(read_page, last, report, read_only)) is not None:
                progress(report.checked)
        progress(report.checked)
        return report

    async def _rekey_page(self, read_page: _ReadPage, after: Any, report: RekeyReport, read_only: bool) -> Any:
        """What the next page begins after; None behind the last page."""
        async with self.uow.read() if read_only else self.uow.write(caller=None) as tx:
            secrets, last = await read_page(tx, after)
            for secret in secrets:
                report.checked += 1
                try:
                    report.by_key[self.key_of(secret.sealed)] += 1
                    if read_only or not self.vault.needs_rekey(secret.sealed):
                        continue
                    renewed = self.vault.seal(self.vault.open(secret.sealed, secret.owner), secret.owner)
                except Unavailable:
                    report.unreadable.append(secret.owner)
                    continue
                report.rekeyed += await secret.replace(renewed)
        return last


_Page: TypeAlias = tuple[Sequence[_Secret], Any]
"""The secrets of a page, and the object after which the next page begins; None behind the last page."""
_ReadPage: TypeAlias = Callable[[RekeyTx, Any], Awaitable[_Page]]


def _last(page: Sequence[T]) -> T | None:
    return page[-1] if len(page) == PAGE_SECRETS else None


async def _credentials(tx: RekeyTx, after: DeviceCredentials | None) -> _Page:
    page = await tx.credentials.page(None if after is None else after.device_id, PAGE_SECRETS)
    rekey = tx.credentials.rekey
    return [_Secret(one.device_id, one.sealed, partial(rekey, one.device_id, one.sealed)) for one in page], _last(page)


async def _webhooks(tx: RekeyTx, after: Webhook | None) -> _Page:
    page = await tx.webhooks.list_page(None if after is None else after.webhook_id, PAGE_SECRETS)
    rekey, rekey_url = tx.webhooks.rekey, tx.webhooks.rekey_url
    secrets = [_Secret(one.webhook_id, one.sealed_secret, partial(rekey, one.webhook_id, one.sealed_secret)) for one in page]
    for one in page:
        if one.sealed_url is not None:
            replace = partial(rekey_url, one.webhook_id, one.sealed_url)
            secrets.append(_Secret(url_seal_context(one.webhook_id), one.sealed_url, replace))
    return secrets, _last(page)


async def _totp_secrets(tx: RekeyTx, after: TotpEnrollment | None) -> _Page:
    page = await tx.second_factors.list_totp_page(None if after is None else after.user_id, PAGE_SECRETS)
    rekey = tx.second_factors.rekey_totp
    return [_Secret(one.user_id, one.sealed, partial(rekey, one.user_id, one.sealed)) for one in page], _last(page)


async def _channels(tx: RekeyTx, after: NotificationChannel | None) -> _Page:
    page = await tx.notification_channels.list_sealed_page(None if after is None else after.channel_id, PAGE_SECRETS)
    rekey = tx.notification_channels.rekey
    sealed = [(one.channel_id, one.sealed or b"") for one in page]
    return [_Secret(channel_id, each, partial(rekey, channel_id, each)) for channel_id, each in sealed], _last(page)


async def _service_secrets(tx: RekeyTx, after: None) -> _Page:
    """A handful; always one page."""
    rekey = tx.service_secrets.rekey
    return [_Secret(name, sealed, partial(rekey, name, sealed)) for name, sealed in await tx.service_secrets.list_all()], None


async def _responses(tx: RekeyTx, after: StoredResponse | None) -> _Page:
    page = await tx.stored_responses.page(after, PAGE_SECRETS)
    return [_Secret(one.seal_context, one.body, partial(tx.stored_responses.rekey, one)) for one in page], _last(page)


_PAGES: tuple[_ReadPage, ...] = (_credentials, _webhooks, _totp_secrets, _channels, _service_secrets, _responses)
