"""The keys that sign audit seals: Ed25519, derived from the secret keys of the installation."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from adapters.crypto.key_ring import MasterKey, MasterKeyRing


class Ed25519AuditSealKey:
    def __init__(self, master: MasterKey) -> None:
        self.key_id = master.key_id
        self._private_key = Ed25519PrivateKey.from_private_bytes(master.derive("audit-seal"))
        self.public_key = self._private_key.public_key().public_bytes_raw().hex()

    def sign(self, content: bytes) -> str:
        return self._private_key.sign(content).hex()


class Ed25519AuditSealKeyProvider:
    def __init__(self, ring: MasterKeyRing) -> None:
        self._ring = ring

    def newest(self) -> Ed25519AuditSealKey:
        return Ed25519AuditSealKey(self._ring.newest)

    def all(self) -> list[Ed25519AuditSealKey]:
        """Newest first."""
        return [Ed25519AuditSealKey(key) for key in (self._ring.newest, *self._ring.keys[1:])]


def is_signed_by(public_key: str, signature: str, content: bytes) -> bool:
    """Key and signature in hexadecimal; what is none of either is False."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True
