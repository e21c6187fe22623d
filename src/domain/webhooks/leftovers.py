"""What deleted webhooks leave behind: the rows of their deliveries and attempts, a million of them after a long outage.

A webhook, or the key with its webhooks, goes in one small transaction; from then on nobody sees it and nothing of it is sent. Its
rows go afterwards, a step at a time, each its own transaction, so that others write in between. That they have no webhook any
more is the only mark they need, so a crash forgets nothing, and it does not matter who deleted the webhook.
"""

from __future__ import annotations

from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import WebhooksTx

STEP_ROWS = 250
"""Some 5 ms of the database's time, attempts included."""


class Leftovers:
    def __init__(self, *, uow: UnitOfWork[WebhooksTx]) -> None:
        self._uow = uow

    async def step(self) -> bool:
        """Take some away. False when there is nothing."""
        async with self._uow.read() as tx:
            webhook_id = await tx.deliveries.left_over()
        if webhook_id is None:
            return False
        async with self._uow.write() as tx:
            return await tx.deliveries.forget_of(webhook_id, STEP_ROWS) > 0
