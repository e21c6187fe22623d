"""Builds the signed HTTP requests of attempts.

The opened URL and the keyed signer of a webhook are kept, because opening and keying cost more than signing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import DomainError
from domain.kernel.ids import WebhookId
from domain.kernel.ports import Vault
from domain.webhooks import standard_and_cloudevents_formats
from domain.webhooks.in_flight_delivery import InFlightWebhookDelivery
from domain.webhooks.model import RESPONSE_TIMEOUT_S, Webhook
from domain.webhooks.ports import OutboundHttpRequest, OutboundHttpResponse
from domain.webhooks.sealed_url import open_url
from domain.webhooks.signing_ports import CreateSigner, WebhookSigner

MAX_CACHED_RECEIVERS = 1_024

BuiltRequest = tuple[InFlightWebhookDelivery, OutboundHttpRequest | OutboundHttpResponse]
"""An attempt with its request, or with a failed response when the request could not be signed."""


@dataclass(frozen=True, slots=True)
class _WebhookUrlAndSigner:
    url: str = field(repr=False)
    signer: WebhookSigner


class WebhookRequestBuilder:
    def __init__(self, *, vault: Vault, create_signer: CreateSigner) -> None:
        self._vault = vault
        self._create_signer = create_signer
        self._receiver_cache: dict[tuple[WebhookId, int], _WebhookUrlAndSigner] = {}

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

    def _get_receiver(self, webhook: Webhook) -> _WebhookUrlAndSigner:
        key = (webhook.webhook_id, webhook.generation)
        receiver = self._receiver_cache.get(key)
        if receiver is None:
            if len(self._receiver_cache) >= MAX_CACHED_RECEIVERS:
                del self._receiver_cache[next(iter(self._receiver_cache))]
            signer = self._create_signer(self._vault.open(webhook.sealed_secret, webhook.webhook_id))
            receiver = self._receiver_cache[key] = _WebhookUrlAndSigner(open_url(self._vault, webhook), signer)
        return receiver


def _build_signed(receiver: _WebhookUrlAndSigner, group: Sequence[InFlightWebhookDelivery]) -> list[BuiltRequest]:
    bodies = [standard_and_cloudevents_formats.build_body(one.webhook.format, one.attempt, one.delivery) for one in group]
    signatures = receiver.signer.sign_batch(
        [(one.attempt.event_id, one.attempt.created_ms // SECOND_MS, body) for one, body in zip(group, bodies, strict=True)]
    )
    built: list[BuiltRequest] = []
    for one, body, (service, standard) in zip(group, bodies, signatures, strict=True):
        headers = standard_and_cloudevents_formats.build_headers(one.webhook.format, one.attempt, one.delivery, service, standard)
        queue_key = "" if one.is_manual else one.webhook.webhook_id
        built.append((one, OutboundHttpRequest(receiver.url, headers, body, RESPONSE_TIMEOUT_S, queue_key)))
    return built
