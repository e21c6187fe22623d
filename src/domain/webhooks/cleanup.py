"""What deleted webhooks leave behind: the rows of their deliveries and attempts, a million of them after a long outage.

A webhook, or the key with its webhooks, goes in one small transaction; from then on nobody sees it and nothing of it is sent. Its
rows go afterwards, a step at a time, each its own transaction, so that others write in between. That they have no webhook any
more is the only mark they need, so a crash forgets nothing, and it does not matter who deleted the webhook.
"""

from __future__ import annotations

from domain.kernel.ids import WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import HasDeliveries

ROWS_PER_STEP = 250
"""Some 5 ms of the database's time, attempts included."""


class WebhookCleanup:
    def __init__(self, *, uow: UnitOfWork[HasDeliveries]) -> None:
        self._uow = uow
        self._position: tuple[WebhookId, int] | None = None
        """The webhook whose rows are being taken away, and the number of the last that was. Nothing but a place to go on from: a
        restart begins anew with what is left."""

    async def run_once(self) -> bool:
        """Take some away. False when there is nothing, or others are at all of it."""
        while True:
            at = self._position or await self._find_next()
            if at is None:
                return False
            webhook_id, after = at
            async with self._uow.write(caller=None) as tx:
                gone = await tx.deliveries.delete_batch_by_webhook(webhook_id, ROWS_PER_STEP, after=after)
            self._position = (webhook_id, gone[-1]) if len(gone) == ROWS_PER_STEP else None
            if gone or not after:
                return bool(gone)

    async def _find_next(self) -> tuple[WebhookId, int] | None:
        async with self._uow.read() as tx:
            webhook_id = await tx.deliveries.find_orphaned_webhook_id()
        return None if webhook_id is None else (webhook_id, 0)
