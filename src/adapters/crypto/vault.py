"""Secrets that have to be read again: AES-256-GCM, bound to the row they belong to.

Sealed form: version (1 byte) · length of key id (1 byte) · key id · nonce (12 bytes) · ciphertext and tag. Nonces are random; the
2^32 messages that are safe under one key are far more than an installation seals between two rotations.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from adapters.crypto.keyring import Key, Ring
from domain.kernel.errors import SecretUnreadable

VERSION = 1
NONCE = 12


class AesVault:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._ciphers: dict[str, AESGCM] = {}

    def seal(self, secret: str, bound_to: str) -> bytes:
        newest = self._ring.newest
        head = bytes([VERSION, len(newest.key_id)]) + newest.key_id.encode()
        nonce = secrets.token_bytes(NONCE)
        return head + nonce + self._cipher(newest).encrypt(nonce, secret.encode(), head + bound_to.encode())

    def open(self, sealed: bytes, bound_to: str) -> str:
        key_id, head, rest = _split(sealed)
        key = self._ring.find(key_id)
        if key is None:
            raise _unreadable()
        try:
            return self._cipher(key).decrypt(rest[:NONCE], rest[NONCE:], head + bound_to.encode()).decode()
        except (InvalidTag, ValueError):
            raise _unreadable() from None

    def outdated(self, sealed: bytes) -> bool:
        return _split(sealed)[0] != self._ring.newest.key_id

    def _cipher(self, key: Key) -> AESGCM:
        known = self._ciphers.get(key.key_id)
        if known is None:
            known = self._ciphers[key.key_id] = AESGCM(key.derive("vault"))
        return known


def key_of(sealed: bytes) -> str:
    """The id of the key it was sealed under. Raises SecretUnreadable for what was never sealed here."""
    return _split(sealed)[0]


def _split(sealed: bytes) -> tuple[str, bytes, bytes]:
    if len(sealed) < 2 or sealed[0] != VERSION:
        raise _unreadable()
    end = 2 + sealed[1]
    return sealed[2:end].decode("ascii", "replace"), sealed[:end], sealed[end:]


def _unreadable() -> SecretUnreadable:
    return SecretUnreadable(
        "The stored secret cannot be opened: the key that sealed it is not in the key ring. The operator can restore secret_keys "
        "from its backup; or make the secret anew, with rotate for credentials and rotate-secret for a webhook."
    )
