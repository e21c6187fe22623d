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


class NativeSignerFactory:
    def create_signer(self, secret: str) -> _native.Signer:
        standard_key(secret)
        return _native.Signer(secret)
