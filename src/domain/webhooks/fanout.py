"""From an event to what is owed for it: one row a webhook that may see the device, in the event's own transaction.

So a crash at any moment loses nothing: either the event is there with all its deliveries, or neither is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domain.events.model import Event
from domain.kernel.clock import Clock
from domain.kernel.ids import AccountId
from domain.webhooks.model import Delivery, DeliveryState, Webhook
from domain.webhooks.policy import encode_payload
from domain.webhooks.ports import FanoutTx
from domain.webhooks.recipients import RecipientCache, WebhookRecipients


class DeliveryFanout:
    """An `EventObserver`. `bell` wakes the delivery loop after the commit."""

    def __init__(self, *, scopes: RecipientCache, clock: Clock, bell: Callable[[], None]) -> None:
        self._recipients = scopes
        self._clock = clock
        self._wake_worker = bell

    async def on_events(self, tx: FanoutTx, events: Sequence[Event]) -> None:
        now_ms = self._clock.now_ms()
        heard: dict[AccountId, list[Event]] = {}
        for event in events:
            if event.is_public and event.device_id is not None:
                heard.setdefault(event.account_id, []).append(event)
            else:
                self._recipients.on_event(tx, event, now_ms)
        owing: list[Delivery] = []
        places = {account_id: {one.device_id for one in public if one.device_id} for account_id, public in heard.items()}
        scopes = await self._recipients.load(tx, places, now_ms)
        for account_id, public in heard.items():
            for event in public:
                owing += _deliveries_for(scopes[account_id], event, now_ms)
        if owing:
            await tx.deliveries.add_many(owing)
            tx.after_commit(self._wake_worker)


def _deliveries_for(scope: WebhookRecipients, event: Event, now_ms: int) -> list[Delivery]:
    listeners = [] if event.device_id is None else scope.list_for_device(event.device_id, now_ms)
    data = encode_payload(event.payload) if listeners else b""
    return [new_delivery(webhook, event, data, now_ms) for webhook in listeners]


def new_delivery(webhook: Webhook, event: Event, data: bytes, now_ms: int) -> Delivery:
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
