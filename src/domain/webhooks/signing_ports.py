"""Port for signing webhooks. A `WebhookSigner` keeps the keyed state of one secret; `signature_reference.py` defines the
signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias


class WebhookSigner(Protocol):
    def service_signature(self, body: bytes) -> str:
        """`X-Service-Signature`: `sha256=<hex>` over the body, keyed with the whole secret string."""

    def standard_signature(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        """`webhook-signature`: `v1,<base64>` over `id.timestamp.body`, keyed with the decoded secret (Standard Webhooks)."""

    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]:
        """(service signature, standard signature) for each (message id, timestamp in s, body)."""


CreateSigner: TypeAlias = Callable[[str], WebhookSigner]
"""For a secret. Raises ValidationFailed when it is not `whsec_` + base64."""
