"""The signed HTTP requests of attempts.

A request has one of three forms: the service's own envelope, or a CloudEvent 1.0 in one of its two HTTP content modes. All carry
the same signature headers, made over the body that is sent. A CloudEvent's `id` is the event's, so every retry has the same; its
`time` is when the service stored the event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from domain.kernel.clock import SECOND_MS, Now, to_iso
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError
from domain.kernel.ids import WebhookId
from domain.kernel.ports import Vault
from domain.webhooks.model import RESPONSE_TIMEOUT_S, DeliveryAttempt, Webhook, WebhookDelivery, WebhookFormat, open_url
from domain.webhooks.ports import NOT_SENT, CreateSigner, OutboundHttpRequest, OutboundHttpResponse, WebhookSigner


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
    at: Now

    @property
    def is_not_sent(self) -> bool:
        return self.response is NOT_SENT


MAX_CACHED_RECEIVERS = 1_024
_Receiver = tuple[str, WebhookSigner]
"""The opened URL of a webhook, and the signer that is keyed with its secret."""
BuiltRequest = tuple[InFlightWebhookDelivery, OutboundHttpRequest | OutboundHttpResponse]
"""An attempt with its request, or with a failed response when the request could not be signed."""


@service
class WebhookRequestBuilder:
    """Builds the signed requests. Opened URLs and keyed signers are kept: opening and keying cost more than signing."""

    vault: Vault
    create_signer: CreateSigner
    _receiver_cache: dict[tuple[WebhookId, int], _Receiver] = field(default_factory=dict, init=False)

    def build(self, attempts: Sequence[InFlightWebhookDelivery]) -> list[BuiltRequest]:
        """The requests with the secret and the URL that each attempt began with, grouped by webhook."""
        built: list[BuiltRequest] = []
        by_webhook: dict[tuple[WebhookId, int], list[InFlightWebhookDelivery]] = {}
        for attempt in attempts:
            by_webhook.setdefault((attempt.webhook.webhook_id, attempt.webhook.generation), []).append(attempt)
        for group in by_webhook.values():
            try:
                receiver = self._get_receiver(group[0].webhook)
            except DomainError as error:
                built += [(attempt, OutboundHttpResponse(None, error.message, b"", 0)) for attempt in group]
            else:
                built += _build_signed(receiver, group)
        return built

    def _get_receiver(self, webhook: Webhook) -> _Receiver:
        key = (webhook.webhook_id, webhook.generation)
        receiver = self._receiver_cache.get(key)
        if receiver is None:
            if len(self._receiver_cache) >= MAX_CACHED_RECEIVERS:
                del self._receiver_cache[next(iter(self._receiver_cache))]
            signer = self.create_signer(self.vault.open(webhook.sealed_secret, webhook.webhook_id))
            receiver = self._receiver_cache[key] = (open_url(self.vault, webhook), signer)
        return receiver


def _build_signed(receiver: _Receiver, group: Sequence[InFlightWebhookDelivery]) -> list[BuiltRequest]:
    bodies = [build_body(one.webhook.format, one.attempt, one.delivery) for one in group]
    url, signer = receiver
    signatures = signer.sign_batch(
        [(one.attempt.event_id, one.attempt.created_ms // SECOND_MS, body) for one, body in zip(group, bodies, strict=True)]
    )
    built: list[BuiltRequest] = []
    for one, body, (own, standard) in zip(group, bodies, signatures, strict=True):
        headers = build_headers(one.webhook.format, one.attempt, one.delivery, own, standard)
        queue_key = "" if one.is_manual else one.webhook.webhook_id
        built.append((one, OutboundHttpRequest(url, headers, body, RESPONSE_TIMEOUT_S, queue_key)))
    return built


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
    webhook_format: WebhookFormat, attempt: DeliveryAttempt, delivery: WebhookDelivery, own: str, standard: str
) -> tuple[tuple[str, str], ...]:
    """The service's own headers; those of Standard Webhooks 1.0.0, whose id is the event's; in binary mode the CloudEvent's."""
    headers = (
        ("Content-Type", CONTENT_TYPES[webhook_format]),
        ("User-Agent", USER_AGENT),
        ("X-Service-Event", attempt.event_type),
        ("X-Service-Delivery", attempt.delivery_id),
        ("X-Service-Signature", own),
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
