"""Reversible encryption of stored secrets: AES-256-GCM, bound to their row by the associated data.

Sealed form: version (1 byte) · length of key id (1 byte) · key id · nonce (12 bytes) · ciphertext and tag. Nonces are random;
one key is safe for 2^32 messages, far more than an installation seals between two rotations.
"""

from __future__ import annotations

import secrets
from dataclasses import field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from adapters.crypto.key_ring import MasterKey, MasterKeyRing
from domain.kernel.dataclasses import service
from domain.kernel.errors import SecretUnreadable

FORMAT_VERSION = 1
NONCE_SIZE = 12


@service
class AesVault:
    ring: MasterKeyRing
    _ciphers: dict[str, AESGCM] = field(default_factory=dict, init=False)

    def seal(self, secret: str, bound_to: str) -> bytes:
        newest = self.ring.newest
        head = bytes([FORMAT_VERSION, len(newest.key_id)]) + newest.key_id.encode()
        nonce = secrets.token_bytes(NONCE_SIZE)
        return head + nonce + self._cipher(newest).encrypt(nonce, secret.encode(), head + bound_to.encode())

    def open(self, sealed: bytes, bound_to: str) -> str:
        key_id, head, rest = _parse_sealed(sealed)
        key = self.ring.find(key_id)
        if key is None:
            raise _unreadable_error()
        try:
            return self._cipher(key).decrypt(rest[:NONCE_SIZE], rest[NONCE_SIZE:], head + bound_to.encode()).decode()
        except (InvalidTag, ValueError):
            raise _unreadable_error() from None

    def needs_rekey(self, sealed: bytes) -> bool:
        return _parse_sealed(sealed)[0] != self.ring.newest.key_id

    def _cipher(self, key: MasterKey) -> AESGCM:
        known = self._ciphers.get(key.key_id)
        if known is None:
            known = self._ciphers[key.key_id] = AESGCM(key.derive("vault"))
        return known


def sealing_key_id(sealed: bytes) -> str:
    """The id of the key that sealed the secret. Raises SecretUnreadable for data in another format."""
    return _parse_sealed(sealed)[0]


def _parse_sealed(sealed: bytes) -> tuple[str, bytes, bytes]:
    if len(sealed) < 2 or sealed[0] != FORMAT_VERSION:
        raise _unreadable_error()
    end = 2 + sealed[1]
    return sealed[2:end].decode("ascii", "replace"), sealed[:end], sealed[end:]


def _unreadable_error() -> SecretUnreadable:
    return SecretUnreadable(
        "The stored secret cannot be opened: the key that sealed it is not in the key ring. The operator can restore secret_keys "
        "from a backup; or replace the secret, with rotate for credentials, and rotate-secret and a new url for a webhook."
    )
