"""Stores a delivery for each webhook that may see an event's device, in the event's own transaction.

So a crash at any moment loses nothing: either the event is stored with all its deliveries, or neither is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domain.events.model import Event
from domain.kernel.clock import Clock, WallAndSteadyTime
from domain.kernel.ids import AccountId
from domain.webhooks.model import WebhookDelivery
from domain.webhooks.ports import WebhookFanoutTx
from domain.webhooks.recipients import AccountWebhookRecipients, WebhookRecipientCache
from domain.webhooks.secrets_and_payloads import encode_payload


class WebhookDeliveryFanout:
    """An `TransactionEventObserver`. `wake_worker` is called after the commit."""

    def __init__(self, *, recipients: WebhookRecipientCache, clock: Clock, wake_worker: Callable[[], None]) -> None:
        self._recipients = recipients
        self._clock = clock
        self._wake_worker = wake_worker

    async def on_events(self, tx: WebhookFanoutTx, events: Sequence[Event]) -> None:
        now = WallAndSteadyTime.now(self._clock)
        public_events: dict[AccountId, list[Event]] = {}
        for event in events:
            if event.is_public and event.device_id is not None:
                public_events.setdefault(event.account_id, []).append(event)
            else:
                self._recipients.on_event(tx, event, now.wall_ms)
        devices = {account_id: {one.device_id for one in public if one.device_id} for account_id, public in public_events.items()}
        recipients = await self._recipients.load(tx, devices, now.wall_ms)
        deliveries: list[WebhookDelivery] = []
        for account_id, public in public_events.items():
            for event in public:
                deliveries += _deliveries_for(recipients[account_id], event, now)
        if deliveries:
            await tx.deliveries.add_many(deliveries)
            tx.after_commit(self._wake_worker)


def _deliveries_for(recipients: AccountWebhookRecipients, event: Event, now: WallAndSteadyTime) -> list[WebhookDelivery]:
    visible = [] if event.device_id is None else recipients.list_for_device(event.device_id, now.wall_ms)
    webhooks = [webhook for webhook in visible if event.kind in webhook.wanted_types]
    data = encode_payload(event.payload) if webhooks else b""
    return [
        WebhookDelivery.pending(webhook, event.device_id, event.event_id, event.kind, data, now.steady_ms, now.wall_ms)
        for webhook in webhooks
    ]
