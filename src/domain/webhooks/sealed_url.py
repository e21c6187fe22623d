"""The URL of a webhook is stored sealed, because its path and query often contain a secret. Scheme and host are stored plain.

A database of an older version has plain URLs. A migration has no keys, so `WebhookUrlSealingMigration` seals them at the next
start, before anything reads a webhook. It works in bounded batches, each in a transaction of its own: after a crash, the next
start seals the rest, and several instances may do it at once.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from domain.kernel.ids import WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.kernel.vault import Vault
from domain.webhooks.model import Webhook
from domain.webhooks.ports import HasWebhooks

SEAL_BATCH_ROWS = 200


def url_origin(url: str) -> str:
    """Scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def url_seal_context(webhook_id: WebhookId) -> str:
    """What a sealed URL is bound to: its webhook, and that it is no signing secret."""
    return f"url:{webhook_id}"


def seal_url(vault: Vault, webhook_id: WebhookId, url: str) -> bytes:
    return vault.seal(url, url_seal_context(webhook_id))


def open_url(vault: Vault, webhook: Webhook) -> str:
    """Raises SecretUnreadable when the key ring lacks the key."""
    if webhook.sealed_url is None:
        return webhook.origin
    return vault.open(webhook.sealed_url, url_seal_context(webhook.webhook_id))


class WebhookUrlSealingMigration:
    def __init__(self, *, uow: UnitOfWork[HasWebhooks], vault: Vault) -> None:
        self._uow = uow
        self._vault = vault

    async def run(self) -> int:
        """Seals every plain URL and returns how many there were. Raises Unavailable when the database does not respond."""
        sealed = 0
        while batch := await self._seal_batch():
            sealed += batch
        return sealed

    async def _seal_batch(self) -> int:
        async with self._uow.read() as tx:
            if not await tx.webhooks.list_unsealed(1):
                return 0
        async with self._uow.write(caller=None) as tx:
            plain = await tx.webhooks.list_unsealed(SEAL_BATCH_ROWS)
            for webhook in plain:
                sealed = seal_url(self._vault, webhook.webhook_id, webhook.origin)
                await tx.webhooks.seal_url(webhook.webhook_id, url_origin(webhook.origin), sealed)
        return len(plain)
