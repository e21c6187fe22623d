"""The installation's secret keys, newest first. The newest signs and seals; older ones still verify and open.

A key is `<id>:<base64 of 32 bytes>`; the id is public and appears in tokens and ciphertexts. Each purpose derives its own key
with HKDF, so no two purposes share one. To rotate, add a new key in front and remove the last one when nothing uses it;
`key_ring_file.py` does both for a ring in a file, also while the service runs.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_SIZE = 32
_KEY_ID_PATTERN = re.compile(r"[A-Za-z0-9]{4,16}")


@dataclass(frozen=True, slots=True)
class MasterKey:
    key_id: str
    secret: bytes = field(repr=False)

    def derive(self, purpose: str) -> bytes:
        """A 32-byte key for one purpose (HKDF, RFC 5869)."""
        return HKDF(SHA256(), KEY_SIZE, salt=None, info=f"latchboard/{purpose}".encode()).derive(self.secret)


class MasterKeyRing(Protocol):
    """Port: the newest key signs and seals; older keys, found by id, verify and open."""

    @property
    def keys(self) -> tuple[MasterKey, ...]: ...

    @property
    def newest(self) -> MasterKey: ...

    def find(self, key_id: str) -> MasterKey | None: ...


@dataclass(frozen=True, slots=True)
class KeyRing:
    """An immutable ring."""

    keys: tuple[MasterKey, ...]

    @property
    def newest(self) -> MasterKey:
        return self.keys[0]

    def find(self, key_id: str) -> MasterKey | None:
        return next((key for key in self.keys if key.key_id == key_id), None)

    def with_new_key(self) -> KeyRing:
        """A copy with a new key in front."""
        return KeyRing((*KeyRing.generate().keys, *self.keys))

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Parse keys separated by commas or white space. Raises ValueError, which never quotes a secret."""
        keys = tuple(_parse_key(part) for part in re.split(r"[,\s]+", text.strip()) if part)
        if not keys:
            raise ValueError("the key ring is empty; give at least one key as <id>:<base64 of 32 bytes>")
        if len({key.key_id for key in keys}) != len(keys):
            raise ValueError("two keys of the key ring have the same id; give each its own")
        return cls(keys)

    @classmethod
    def generate(cls) -> KeyRing:
        return cls((MasterKey(f"k{secrets.token_hex(4)}", secrets.token_bytes(KEY_SIZE)),))

    def to_text(self) -> str:
        """The secret text form that `parse` reads."""
        return "\n".join(f"{key.key_id}:{base64.b64encode(key.secret).decode()}" for key in self.keys)


def _parse_key(part: str) -> MasterKey:
    key_id, _, encoded = part.partition(":")
    if _KEY_ID_PATTERN.fullmatch(key_id) is None:
        raise ValueError("a key of the key ring has no id of 4 to 16 letters and digits before its colon")
    try:
        secret = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError(f"the key {key_id} is not base64") from None
    if len(secret) != KEY_SIZE:
        raise ValueError(
            f"the key {key_id} has {len(secret)} bytes, not {KEY_SIZE}; make one with: openssl rand -base64 {KEY_SIZE}"
        )
    return MasterKey(key_id, secret)
