"""From an event to what is owed for it: one row a webhook that may see the device, in the event's own transaction.

So a crash at any moment loses nothing: either the event is there with all its deliveries, or neither is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from domain.events.model import Event
from domain.events.ports import EventsTx
from domain.kernel.clock import Clock
from domain.webhooks.model import Delivery, DeliveryState, Webhook
from domain.webhooks.policy import data_bytes
from domain.webhooks.ports import WebhooksTx
from domain.webhooks.scope import Scopes


class Fanout:
    """An `EventObserver`. `bell` wakes the delivery loop after the commit."""

    def __init__(self, *, scopes: Scopes, clock: Clock, bell: Callable[[], None]) -> None:
        self._scopes = scopes
        self._clock = clock
        self._bell = bell

    async def on_event(self, tx: EventsTx, event: Event) -> None:
        whole = cast("WebhooksTx", tx)  # storage has one transaction object with all repositories
        now_ms = self._clock.now_ms()
        if not event.is_public or event.device_id is None:
            self._scopes.observe(whole, event, now_ms)
            return
        scope = await self._scopes.of(whole, event.account_id, now_ms)
        listeners = await scope.listeners(whole, event.device_id, now_ms)
        if listeners:
            data = data_bytes(event.payload)
            await whole.deliveries.add([owed(webhook, event, data, now_ms) for webhook in listeners])
            whole.after_commit(self._bell)


def owed(webhook: Webhook, event: Event, data: bytes, now_ms: int) -> Delivery:
    return Delivery(
        no=0,
        webhook_id=webhook.webhook_id,
        account_id=event.account_id,
        device_id=event.device_id,
        event_id=event.event_id,
        event_type=event.kind,
        data=data,
        state=DeliveryState.PENDING,
        attempts=0,
        due_ms=now_ms,
        claimed_until_ms=None,
        created_ms=now_ms,
    )
