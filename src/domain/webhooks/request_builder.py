"""Builds the signed HTTP requests of attempts. One keyed signer per secret is kept, because keying costs more than signing."""

from __future__ import annotations

from collections.abc import Sequence

from domain.devices.ports import Vault
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import DomainError
from domain.kernel.ids import WebhookId
from domain.webhooks import policy
from domain.webhooks.attempts import InFlightAttempt
from domain.webhooks.model import RESPONSE_TIMEOUT_S, Webhook
from domain.webhooks.ports import WebhookRequest, WebhookResponse
from domain.webhooks.signing import Signer, SignerFactory

MAX_CACHED_SIGNERS = 1_024

BuiltRequest = tuple[InFlightAttempt, WebhookRequest | WebhookResponse]
"""An attempt with its request, or with a failed response when the request could not be signed."""


class WebhookRequestBuilder:
    def __init__(self, *, vault: Vault, signers: SignerFactory) -> None:
        self._vault = vault
        self._signer_factory = signers
        self._signer_cache: dict[tuple[WebhookId, int], Signer] = {}

    def build(self, attempts: Sequence[InFlightAttempt]) -> list[BuiltRequest]:
        """The requests, signed with the current secrets, grouped by webhook."""
        built: list[BuiltRequest] = []
        by_webhook: dict[WebhookId, list[InFlightAttempt]] = {}
        for attempt in attempts:
            by_webhook.setdefault(attempt.webhook.webhook_id, []).append(attempt)
        for group in by_webhook.values():
            try:
                signer = self._get_signer(group[0].webhook)
            except DomainError as error:
                built += [(attempt, WebhookResponse(None, error.message, b"", 0)) for attempt in group]
            else:
                built += _build_signed(signer, group)
        return built

    def _get_signer(self, webhook: Webhook) -> Signer:
        key = (webhook.webhook_id, webhook.generation)
        signer = self._signer_cache.get(key)
        if signer is None:
            if len(self._signer_cache) >= MAX_CACHED_SIGNERS:
                del self._signer_cache[next(iter(self._signer_cache))]
            signer = self._signer_factory.create_signer(self._vault.open(webhook.sealed_secret, webhook.webhook_id))
            self._signer_cache[key] = signer
        return signer


def _build_signed(signer: Signer, group: Sequence[InFlightAttempt]) -> list[BuiltRequest]:
    bodies = [policy.build_body(one.attempt, one.delivery.data) for one in group]
    signatures = signer.sign_batch(
        [(one.attempt.event_id, one.attempt.created_ms // SECOND_MS, body) for one, body in zip(group, bodies, strict=True)]
    )
    built: list[BuiltRequest] = []
    for one, body, (service, standard) in zip(group, bodies, signatures, strict=True):
        headers = policy.build_headers(one.attempt, service, standard)
        queue_key = "" if one.is_manual else one.webhook.webhook_id
        built.append((one, WebhookRequest(one.webhook.url, headers, body, RESPONSE_TIMEOUT_S, queue_key)))
    return built
