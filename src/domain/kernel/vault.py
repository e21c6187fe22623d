"""Port: reversible encryption of stored secrets."""

from __future__ import annotations

from typing import Protocol


class Vault(Protocol):
    """AES-GCM with a key ring. `bound_to` is associated data: a ciphertext copied to another row cannot be decrypted."""

    def seal(self, secret: str, bound_to: str) -> bytes: ...

    def open(self, sealed: bytes, bound_to: str) -> str:
        """Raises SecretUnreadable when no key of the ring decrypts it."""

    def needs_rekey(self, sealed: bytes) -> bool:
        """Whether it was encrypted with a key other than the newest."""
