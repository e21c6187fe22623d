"""The installation's secret keys, newest first. The newest signs and seals; older ones still verify and open.

A key is `<id>:<base64 of 32 bytes>`; the id is public (it stands in tokens and ciphertexts). Each use derives its own key from
it by HKDF, so that no two uses share one. To rotate, put a new key in front and take the last one away once nothing needs it.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SIZE = 32
_ID = re.compile(r"[A-Za-z0-9]{4,16}")


@dataclass(frozen=True, slots=True)
class Key:
    key_id: str
    secret: bytes = field(repr=False)

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one purpose only (RFC 5869)."""
        return HKDF(SHA256(), SIZE, salt=None, info=f"latchboard/{purpose}".encode()).derive(self.secret)


@dataclass(frozen=True, slots=True)
class KeyRing:
    keys: tuple[Key, ...]

    @property
    def newest(self) -> Key:
        return self.keys[0]

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Keys separated by commas or white space. Raises ValueError that never quotes a secret."""
        keys = tuple(_parse_key(part) for part in re.split(r"[,\s]+", text.strip()) if part)
        if not keys:
            raise ValueError("the key ring is empty; give at least one key as <id>:<base64 of 32 bytes>")
        if len({key.key_id for key in keys}) != len(keys):
            raise ValueError("two keys of the key ring have the same id; give each its own")
        return cls(keys)

    @classmethod
    def generate(cls) -> KeyRing:
        return cls((Key(f"k{secrets.token_hex(4)}", secrets.token_bytes(SIZE)),))

    @classmethod
    def load_or_create(cls, path: Path) -> KeyRing:
        """The ring kept at `path`; a new one, readable by the owner only, when there is none.

        Raises ValueError for a damaged file and PermissionError for one that others can read."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return cls._load(path)
        ring = cls.generate()
        with os.fdopen(descriptor, "w") as file:
            file.write(ring.text() + "\n")
            file.flush()
            os.fsync(file.fileno())
        return ring

    @classmethod
    def _load(cls, path: Path) -> KeyRing:
        if path.stat().st_mode & 0o077:
            raise PermissionError(f"{path} can be read by others than its owner; run: chmod 600 {path}")
        return cls.parse(path.read_text())

    def text(self) -> str:
        """What `parse` reads. Secret."""
        return "\n".join(f"{key.key_id}:{base64.b64encode(key.secret).decode()}" for key in self.keys)


def _parse_key(part: str) -> Key:
    key_id, _, encoded = part.partition(":")
    if _ID.fullmatch(key_id) is None:
        raise ValueError("a key of the key ring has no id of 4 to 16 letters and digits before its colon")
    try:
        secret = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError(f"the key {key_id} is not base64") from None
    if len(secret) != SIZE:
        raise ValueError(f"the key {key_id} has {len(secret)} bytes, not {SIZE}; make one with: openssl rand -base64 {SIZE}")
    return Key(key_id, secret)
