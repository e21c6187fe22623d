"""Seals the URLs that a database of an older version stores plain.

A migration of the database has no keys, so this runs at the next start, before anything reads a webhook. It works in bounded
batches, each in a transaction of its own: after a crash, the next start seals the rest, and several instances may do it at once.
"""

from __future__ import annotations

from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.model import seal_url, url_origin
from domain.webhooks.ports import WebhooksTx

SEAL_BATCH_ROWS = 200


class WebhookUrlSealingMigration:
    def __init__(self, *, uow: UnitOfWork[WebhooksTx], vault: Vault) -> None:
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
