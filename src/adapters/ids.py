"""Unguessable text from the operating system's generator."""

from __future__ import annotations

import secrets

from domain.kernel.ids import Prefix

_ID = "abcdefghijklmnopqrstuvwxyz0123456789"
_PASSWORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _ID
ID_LENGTH = 20
"""36^20 is 103 bits: more than enough against guessing and collision."""


# 252 is the largest multiple of 36 in a byte: what is above is thrown away, so that every character is equally likely.
_TO_ID = bytes(ord(_ID[byte % 36]) for byte in range(256))
_UNEVEN = bytes(range(252, 256))


class SystemIds:
    """`secrets`, nothing else; every character is equally likely."""

    def new(self, prefix: Prefix) -> str:
        text = b""
        while len(text) < ID_LENGTH:
            text += secrets.token_bytes(2 * ID_LENGTH).translate(_TO_ID, _UNEVEN)
        return f"{prefix}_{text[:ID_LENGTH].decode()}"

    def digits(self, count: int) -> str:
        return str(secrets.randbelow(10**count)).zfill(count)

    def password(self, length: int) -> str:
        return "".join(secrets.choice(_PASSWORD) for _ in range(length))

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)
