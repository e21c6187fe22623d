"""What deleted webhooks leave behind: the rows of their deliveries and attempts, a million of them after a long outage.

A webhook, or the key with its webhooks, goes in one small transaction; from then on nobody sees it and nothing of it is sent. Its
rows go afterwards, a step at a time, each its own transaction, so that others write in between. That they have no webhook any
more is the only mark they need, so a crash forgets nothing, and it does not matter who deleted the webhook.
"""

from __future__ import annotations

from domain.kernel.ids import WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import WebhooksTx

STEP_ROWS = 250
"""Some 5 ms of the database's time, attempts included."""


class Leftovers:
    def __init__(self, *, uow: UnitOfWork[WebhooksTx]) -> None:
        self._uow = uow
        self._at: tuple[WebhookId, int] | None = None
        """The webhook whose rows are being taken away, and the number of the last that was. Nothing but a place to go on from: a
        restart begins anew with what is left."""

    async def step(self) -> bool:
        """Take some away. False when there is nothing, or others are at all of it."""
        while True:
            at = self._at or await self._next()
            if at is None:
                return False
            webhook_id, after = at
            async with self._uow.write() as tx:
                gone = await tx.deliveries.forget_of(webhook_id, STEP_ROWS, after=after)
            self._at = (webhook_id, gone[-1]) if len(gone) == STEP_ROWS else None
            if gone or not after:
                return bool(gone)

    async def _next(self) -> tuple[WebhookId, int] | None:
        async with self._uow.read() as tx:
            webhook_id = await tx.deliveries.left_over()
        return None if webhook_id is None else (webhook_id, 0)
