"""Hashes for look-up: plain for secrets of full entropy, keyed for those somebody could guess.

The keyed hash uses the oldest key of the ring: what it protects lives ten minutes, and a rotation that puts a new key in
front must not end codes that are under way.
"""

from __future__ import annotations

import hashlib
import hmac

from adapters.crypto.key_ring import KeyProvider


class KeyRingSecretHasher:
    def __init__(self, ring: KeyProvider) -> None:
        self._key = ring.keys[-1].derive("digest")

    def sha256(self, text: str) -> bytes:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def hmac_sha256(self, purpose: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{purpose}\x00{text}".encode("utf-8", "surrogatepass"), "sha256")
