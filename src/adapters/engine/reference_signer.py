"""Webhook signatures by their reference definition: for tests, and for `engine = "reference"`."""

from __future__ import annotations

from collections.abc import Sequence

from domain.webhooks.reference import service_signature, standard_key, standard_signature


class ReferenceWebhookSigner:
    def __init__(self, secret: str) -> None:
        """Raises ValidationFailed for a secret that is no Standard Webhooks key."""
        standard_key(secret)
        self._secret = secret

    def service_signature(self, body: bytes) -> str:
        return service_signature(self._secret, body)

    def standard_signature(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        return standard_signature(self._secret, message_id, timestamp_s, body)

    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]:
        return [
            (self.service_signature(body), self.standard_signature(name, timestamp_s, body))
            for name, timestamp_s, body in messages
        ]
