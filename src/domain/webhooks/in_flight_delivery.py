"""A delivery attempt in flight, and its result."""

from __future__ import annotations

from dataclasses import dataclass

from domain.kernel.clock import WallAndSteadyTime
from domain.webhooks.model import DeliveryAttempt, Webhook, WebhookDelivery
from domain.webhooks.ports import NOT_SENT, OutboundHttpResponse


@dataclass(frozen=True, slots=True)
class InFlightWebhookDelivery:
    """An attempt that has begun. `is_manual`: a ping or a redelivery, which does not use an endpoint queue."""

    delivery: WebhookDelivery
    attempt: DeliveryAttempt
    webhook: Webhook
    is_manual: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryAttemptResult:
    """`response`: None when a stop or a change of the webhook cancelled the attempt; NOT_SENT when it was never sent."""

    in_flight: InFlightWebhookDelivery
    response: OutboundHttpResponse | None
    at: WallAndSteadyTime

    @property
    def is_not_sent(self) -> bool:
        return self.response is NOT_SENT
