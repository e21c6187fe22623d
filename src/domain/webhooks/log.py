"""The log of a webhook's attempts, and attempts made by hand: a ping, or an earlier event once more.

What is made by hand is owed like everything else, so a crash does not lose it, and it begins in the transaction that writes it,
so that its caller learns the id of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import NotFound, Refused, Unavailable
from domain.kernel.ids import DeliveryId, EventId, IdSource, Prefix, looks_like
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks import policy
from domain.webhooks.delivery import DeliveryService, Job
from domain.webhooks.model import LOG_LENGTH, Attempt, Delivery, DeliveryState, Webhook
from domain.webhooks.policy import LEASE_MS
from domain.webhooks.ports import WebhooksTx
from domain.webhooks.service import webhook_of

FIRST_OF_ALL_MS = 0
"""Due before anything else, so that the very next claim gives it to us."""


class DeliveryLog:
    def __init__(
        self,
        *,
        uow: UnitOfWork[WebhooksTx],
        clock: Clock,
        ids: IdSource,
        deliveries: DeliveryService,
        send: Callable[[Job], None],
    ) -> None:
        """`send` hands a job that has begun to the delivery loop, after the commit."""
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._deliveries = deliveries
        self._send = send

    async def newest(self, caller: Session, webhook_id: str) -> Sequence[Attempt]:
        """The last 50 attempts, newest first. Raises NotFound."""
        now_ms = self._clock.now_ms()
        async with self._uow.read() as tx:
            webhook = await webhook_of(tx, caller, webhook_id)
            attempts = await tx.deliveries.log(webhook.webhook_id, LOG_LENGTH)
        return [policy.as_logged(attempt, now_ms) for attempt in attempts]

    async def ping(self, caller: Session, webhook_id: str) -> DeliveryId:
        """Raises Refused, NotFound, Conflict `WEBHOOK_DISABLED`."""
        require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        event_id = EventId(self._ids.new(Prefix.EVENT))
        async with self._uow.write() as tx:
            webhook = await webhook_of(tx, caller, webhook_id)
            data = policy.data_bytes(
                {
                    "type": policy.PING,
                    "eventId": event_id,
                    "accountId": webhook.account_id,
                    "webhookId": webhook.webhook_id,
                    "timestamp": now_ms,
                }
            )
            return await self._begin(tx, webhook, _ping(webhook, event_id, data, now_ms), now_ms)

    async def redeliver(self, caller: Session, webhook_id: str, delivery_id: str) -> DeliveryId:
        """The same event again, with six attempts. It is sent only while the key still sees the device.

        Raises Refused, NotFound, Conflict `WEBHOOK_DISABLED`."""
        require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            webhook = await webhook_of(tx, caller, webhook_id)
            attempt = None
            if looks_like(Prefix.DELIVERY, delivery_id):
                attempt = await tx.deliveries.attempt(webhook.webhook_id, DeliveryId(delivery_id))
            owed = None if attempt is None else await tx.deliveries.get(attempt.delivery_no)
            if owed is None:
                raise NotFound.of("delivery", delivery_id)
            return await self._begin(tx, webhook, _again(owed, now_ms), now_ms)

    async def _begin(self, tx: WebhooksTx, webhook: Webhook, delivery: Delivery, now_ms: int) -> DeliveryId:
        policy.check_enabled(webhook)
        if await self._deliveries.admitted(tx, delivery, now_ms) is None:
            raise Refused(
                "The webhook's key is disabled or may not see this device (any more). Enable the key, or grant it the device.",
                code="GRANT_MISSING",
            )
        await tx.deliveries.add([delivery])
        claimed = next(iter(await tx.deliveries.claim(now_ms, now_ms + LEASE_MS, 1)), None)
        if claimed is None or (claimed.webhook_id, claimed.event_id) != (delivery.webhook_id, delivery.event_id):
            raise Unavailable("The delivery could not be begun. Try again in a moment.")
        job = replace(self._deliveries.begin(claimed, webhook, now_ms), by_hand=True)
        await tx.deliveries.start_attempt([job.attempt])
        tx.after_commit(lambda: self._send(job))
        return job.attempt.delivery_id


def _ping(webhook: Webhook, event_id: EventId, data: bytes, now_ms: int) -> Delivery:
    return Delivery(
        no=0,
        webhook_id=webhook.webhook_id,
        account_id=webhook.account_id,
        device_id=None,
        event_id=event_id,
        event_type=policy.PING,
        data=data,
        state=DeliveryState.PENDING,
        attempts=0,
        due_ms=FIRST_OF_ALL_MS,
        claimed_until_ms=None,
        created_ms=now_ms,
    )


def _again(owed: Delivery, now_ms: int) -> Delivery:
    return replace(
        owed,
        no=0,
        state=DeliveryState.PENDING,
        attempts=0,
        due_ms=FIRST_OF_ALL_MS,
        claimed_until_ms=None,
        created_ms=now_ms,
    )
