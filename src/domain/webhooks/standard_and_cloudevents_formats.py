"""The three forms of a webhook request: the service's own envelope, and CloudEvents 1.0 in its two HTTP content modes.

All carry the same signature headers, made over the body that is sent. A CloudEvent's `id` is the event's, so every retry has the
same; its `time` is when the service stored the event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache

from domain.kernel.clock import SECOND_MS, to_iso
from domain.webhooks.model import DeliveryAttempt, WebhookDelivery, WebhookFormat

USER_AGENT = "Latchboard-Webhooks/1"
SPEC_VERSION = "1.0"
TYPE_PREFIX = "latchboard."
CONTENT_TYPES = {
    WebhookFormat.STANDARD: "application/json",
    WebhookFormat.CLOUDEVENTS_STRUCTURED: "application/cloudevents+json",
    WebhookFormat.CLOUDEVENTS_BINARY: "application/json",
}

_format_time = lru_cache(maxsize=64)(to_iso)
"""Cached, because the attempts of one batch begin in the same millisecond."""


def build_body(webhook_format: WebhookFormat, attempt: DeliveryAttempt, delivery: WebhookDelivery) -> bytes:
    """The exact bytes that are signed and sent. Ids and event types are generated here and need no escaping."""
    if webhook_format is WebhookFormat.CLOUDEVENTS_BINARY:
        return delivery.data
    if webhook_format is WebhookFormat.CLOUDEVENTS_STRUCTURED:
        attributes = json.dumps(dict(cloud_event_attributes(delivery)), separators=(",", ":"))
        return attributes[:-1].encode() + b',"datacontenttype":"application/json","data":' + delivery.data + b"}"
    head = (
        f'{{"id":"{attempt.delivery_id}","type":"{attempt.event_type}","createdAt":"{_format_time(attempt.created_ms)}","data":'
    )
    return head.encode() + delivery.data + b"}"


def build_headers(
    webhook_format: WebhookFormat, attempt: DeliveryAttempt, delivery: WebhookDelivery, service: str, standard: str
) -> tuple[tuple[str, str], ...]:
    """The service's own headers; those of Standard Webhooks 1.0.0, whose id is the event's; in binary mode the CloudEvent's."""
    headers = (
        ("Content-Type", CONTENT_TYPES[webhook_format]),
        ("User-Agent", USER_AGENT),
        ("X-Service-Event", attempt.event_type),
        ("X-Service-Delivery", attempt.delivery_id),
        ("X-Service-Signature", service),
        ("webhook-id", attempt.event_id),
        ("webhook-timestamp", str(attempt.created_ms // SECOND_MS)),
        ("webhook-signature", standard),
    )
    if webhook_format is not WebhookFormat.CLOUDEVENTS_BINARY:
        return headers
    return (*headers, *((f"ce-{name}", value) for name, value in cloud_event_attributes(delivery)))


def cloud_event_attributes(delivery: WebhookDelivery) -> Iterator[tuple[str, str]]:
    """Without `datacontenttype`, which is the Content-Type in binary mode."""
    yield "specversion", SPEC_VERSION
    yield "id", delivery.event_id
    yield "source", f"/accounts/{delivery.account_id}"
    yield "type", TYPE_PREFIX + delivery.event_type
    yield "time", _format_time(delivery.created_ms)
    if delivery.device_id is not None:
        yield "subject", delivery.device_id
