"""The log of a webhook's attempts, and attempts on request: a ping, or an earlier event again.

A manual attempt is stored as a delivery like any other, so a crash does not lose it. It begins in the transaction that stores it,
so that the caller learns the id of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import ANY_TIME, Clock, TimeSpan
from domain.kernel.dataclasses import service
from domain.kernel.errors import NotFound, PermissionDenied, Unavailable
from domain.kernel.ids import DeliveryId, EventId, IdAndSecretGenerator, IdPrefix, has_id_format
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.delivery import WebhookDeliveryService
from domain.webhooks.model import LEASE_MS, DeliveryAttempt, Webhook, WebhookDelivery, WebhookDeliveryState, encode_payload
from domain.webhooks.policy import mark_interrupted, require_enabled
from domain.webhooks.ports import WebhooksTx
from domain.webhooks.requests import InFlightWebhookDelivery
from domain.webhooks.service import get_webhook

LISTED_ATTEMPTS = 50
DUE_FIRST_MS = 0
"""Due before any other delivery, so that the next claim returns it."""

PING_EVENT_TYPE = "ping"


@service
class WebhookDeliveryLogService:
    """`send` passes an attempt that has begun to the delivery worker, after the commit."""

    uow: UnitOfWork[WebhooksTx]
    clock: Clock
    ids: IdAndSecretGenerator
    deliveries: WebhookDeliveryService
    send: Callable[[InFlightWebhookDelivery], None]

    async def list_attempts(
        self,
        caller: SessionCaller,
        webhook_id: str,
        *,
        limit: int = LISTED_ATTEMPTS,
        before: int | None = None,
        created: TimeSpan = ANY_TIME,
    ) -> Sequence[DeliveryAttempt]:
        """Newest first; `before`: only those of a lower `seq`. Raises NotFound."""
        now_ms = self.clock.now_ms()
        async with self.uow.read() as tx:
            webhook = await get_webhook(tx, caller, webhook_id)
            attempts = await tx.deliveries.list_attempts(webhook.webhook_id, limit, before, created)
        return [mark_interrupted(attempt, now_ms) for attempt in attempts]

    async def get_attempt(self, caller: SessionCaller, webhook_id: str, delivery_id: str) -> DeliveryAttempt:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            webhook = await get_webhook(tx, caller, webhook_id)
            return mark_interrupted(await _get_attempt(tx, webhook, delivery_id), self.clock.now_ms())

    async def ping(self, caller: SessionCaller, webhook_id: str) -> DeliveryId:
        """Raises PermissionDenied, NotFound, Conflict `WEBHOOK_DISABLED`."""
        now_ms = self.clock.now_ms()
        event_id = EventId(self.ids.new_id(IdPrefix.EVENT))
        async with self.uow.write(caller, Role.ADMIN) as tx:
            webhook = await get_webhook(tx, caller, webhook_id)
            data = encode_payload(
                {
                    "type": PING_EVENT_TYPE,
                    "eventId": event_id,
                    "accountId": webhook.account_id,
                    "webhookId": webhook.webhook_id,
                    "timestamp": now_ms,
                }
            )
            ping = WebhookDelivery.pending(webhook, None, event_id, PING_EVENT_TYPE, data, DUE_FIRST_MS, now_ms)
            return await self._start_attempt(tx, webhook, ping, now_ms)

    async def redeliver(self, caller: SessionCaller, webhook_id: str, delivery_id: str) -> DeliveryId:
        """Sends the same event again, with up to six attempts, if the key still sees the device.

        Raises PermissionDenied, NotFound, Conflict `WEBHOOK_DISABLED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            webhook = await get_webhook(tx, caller, webhook_id)
            attempt = await _get_attempt(tx, webhook, delivery_id)
            earlier = await tx.deliveries.get(attempt.delivery_no)
            if earlier is None:
                raise NotFound.for_resource("delivery", delivery_id)
            return await self._start_attempt(tx, webhook, _redelivery(earlier, now_ms), now_ms)

    async def _start_attempt(self, tx: WebhooksTx, webhook: Webhook, delivery: WebhookDelivery, now_ms: int) -> DeliveryId:
        require_enabled(webhook)
        if await self.deliveries.find_authorized_webhook(tx, delivery, now_ms) is None:
            raise PermissionDenied(
                "The webhook's key is disabled or does not see this device (any more). Enable the key, or grant it the device.",
                code="GRANT_MISSING",
            )
        await tx.deliveries.add_many([delivery])
        steady_ms = self.clock.steady_ms()
        claimed = next(iter(await tx.deliveries.claim(steady_ms, steady_ms + LEASE_MS, 1)), None)
        if claimed is None or (claimed.webhook_id, claimed.event_id) != (delivery.webhook_id, delivery.event_id):
            raise Unavailable("The delivery could not be started. Try again in a moment.")
        in_flight = replace(self.deliveries.new_attempt(claimed, webhook, now_ms), is_manual=True)
        await tx.deliveries.add_attempts([in_flight.attempt])
        tx.after_commit(lambda: self.send(in_flight))
        return in_flight.attempt.delivery_id


async def _get_attempt(tx: WebhooksTx, webhook: Webhook, delivery_id: str) -> DeliveryAttempt:
    found = None
    if has_id_format(IdPrefix.DELIVERY, delivery_id):
        found = await tx.deliveries.get_attempt(webhook.webhook_id, DeliveryId(delivery_id))
    if found is None:
        raise NotFound.for_resource("delivery", delivery_id)
    return found


def _redelivery(earlier: WebhookDelivery, now_ms: int) -> WebhookDelivery:
    return replace(
        earlier,
        no=0,
        state=WebhookDeliveryState.PENDING,
        attempts=0,
        due_ms=DUE_FIRST_MS,
        claimed_until_ms=None,
        created_ms=now_ms,
    )
