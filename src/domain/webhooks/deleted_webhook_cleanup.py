"""Deletes the rows that deleted webhooks leave behind: deliveries and attempts, possibly a million after a long outage.

A webhook, or a key with its webhooks, is deleted in one small transaction; from then on it is invisible and nothing is sent to
it. Its deliveries are deleted afterwards in batches, each in a transaction of its own, so that other transactions can write in
between. A delivery is recognised by its missing webhook: a crash forgets nothing, and it does not matter who deleted the webhook.
"""

from __future__ import annotations

from domain.kernel.ids import WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import HasWebhookDeliveries

BATCH_ROWS = 250
"""About 5 ms of database time, attempts included."""


class DeletedWebhookCleanup:
    def __init__(self, *, uow: UnitOfWork[HasWebhookDeliveries]) -> None:
        self._uow = uow
        self._position: tuple[WebhookId, int] | None = None
        """The webhook being cleaned up, and the number of its last deleted delivery. Only a cursor: after a restart the search
        starts again."""

    async def run_once(self) -> bool:
        """Deletes one batch. False when there is nothing to delete, or other transactions have locked all of it."""
        while True:
            position = self._position or await self._find_next()
            if position is None:
                return False
            webhook_id, after = position
            async with self._uow.write(caller=None) as tx:
                deleted = await tx.deliveries.delete_batch_by_webhook(webhook_id, BATCH_ROWS, after=after)
            self._position = (webhook_id, deleted[-1]) if len(deleted) == BATCH_ROWS else None
            if deleted or not after:
                return bool(deleted)

    async def _find_next(self) -> tuple[WebhookId, int] | None:
        async with self._uow.read() as tx:
            webhook_id = await tx.deliveries.find_orphaned_webhook_id()
        return None if webhook_id is None else (webhook_id, 0)
