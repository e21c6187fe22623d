"""Hashes for look-up: SHA-256 for secrets with full entropy, HMAC-SHA-256 for guessable ones.

The HMAC uses the oldest key of the ring: it protects codes that live ten minutes, and a rotation that adds a new key in front
must not invalidate codes already sent.
"""

from __future__ import annotations

import hashlib
import hmac

from adapters.crypto.key_ring import MasterKeyRing


class KeyRingTokenHasher:
    def __init__(self, ring: MasterKeyRing) -> None:
        self._key = ring.keys[-1].derive("digest")

    def sha256(self, text: str) -> bytes:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def hmac_sha256(self, purpose: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{purpose}\x00{text}".encode("utf-8", "surrogatepass"), "sha256")
