"""Webhook signatures by the extension; `domain.webhooks.signature_reference` defines them.

Importing this module without the extension raises EngineMissingError.
"""

from __future__ import annotations

from adapters.engine.extension_check import EngineMissingError
from domain.webhooks.signature_reference import standard_key

try:
    from adapters.engine import _native
except ImportError as missing:
    raise EngineMissingError from missing


def create_native_signer(secret: str) -> _native.Signer:
    """Raises ValidationFailed for a secret that is no Standard Webhooks key."""
    standard_key(secret)
    return _native.Signer(secret)
