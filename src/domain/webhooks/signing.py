"""Port to what signs webhooks. One `Signer` per secret keeps the keyed state; what a signature is, `reference.py` defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Signer(Protocol):
    def service(self, body: bytes) -> str:
        """`X-Service-Signature`: `sha256=<hex>` over the body, keyed with the whole secret as its user holds it."""
        ...

    def standard(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        """`webhook-signature`: `v1,<base64>` over `id.timestamp.body`, keyed with the decoded secret (Standard Webhooks)."""
        ...

    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]:
        """(service, standard) for each (message id, timestamp in s, body)."""
        ...


class SignerFactory(Protocol):
    def create_signer(self, secret: str) -> Signer:
        """Raises Invalid when `secret` is not `whsec_` + base64."""
        ...
