"""The requests that a webhook receives: headers, and one envelope per event type. Both documents describe them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, create_model

from adapters.http.asyncapi.event_payloads import EVENT_PAYLOADS, UnixMilliseconds, event_type
from adapters.http.core.schemas import ResponseModel, Timestamp

DELIVERY_ID = "whd_8h6f4d2b0z9x7v5t3r1p"


class PingPayload(ResponseModel):
    """The test message of `POST …/ping`."""

    type: Literal["ping"]
    event_id: str
    account_id: str
    webhook_id: str
    timestamp: UnixMilliseconds


class WebhookEnvelopeSchema(ResponseModel):
    """The body of a delivery."""

    id: str = Field(description="The attempt; each retry has its own.", examples=[DELIVERY_ID])
    type: str
    created_at: Timestamp


def _envelope(name: str, payload: type[ResponseModel]) -> type[WebhookEnvelopeSchema]:
    fields: dict[str, Any] = {"type": (payload.model_fields["type"].annotation, ...), "data": (payload, ...)}
    return create_model(f"{name}Webhook", __base__=WebhookEnvelopeSchema, __doc__=payload.__doc__, **fields)


WEBHOOK_ENVELOPES: dict[str, type[WebhookEnvelopeSchema]] = {
    **{event_type(payload): _envelope(payload.__name__.removesuffix("Event"), payload) for payload in EVENT_PAYLOADS},
    "ping": _envelope("Ping", PingPayload),
}
"""By event type."""

WEBHOOK_HEADERS = {
    "X-Service-Event": "The event type, as in the body.",
    "X-Service-Delivery": "The id of the attempt, as in the body.",
    "X-Service-Signature": "`sha256=` and the HMAC-SHA256 of the exact body, in hexadecimal, keyed with the webhook's secret.",
    "webhook-id": "The event's id, the same for every attempt (Standard Webhooks).",
    "webhook-timestamp": "Unix seconds of the attempt (Standard Webhooks).",
    "webhook-signature": "`v1,` and the Base64 signature of `id.timestamp.body` (Standard Webhooks).",
}
