"""Webhook signatures by the extension; `domain.webhooks.reference` defines them."""

from __future__ import annotations

from adapters.engine import _native
from domain.webhooks.reference import standard_key


def create_native_signer(secret: str) -> _native.Signer:
    """Raises ValidationFailed for a secret that is no Standard Webhooks key."""
    standard_key(secret)
    return _native.Signer(secret)
