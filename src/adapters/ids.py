"""Unguessable text from the operating system's generator."""

from __future__ import annotations

import secrets

from domain.kernel.ids import Prefix

_ID = "abcdefghijklmnopqrstuvwxyz0123456789"
_PASSWORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _ID
ID_LENGTH = 20
"""36^20 is 103 bits: more than enough against guessing and collision."""


class SystemIds:
    """`secrets`, nothing else; every character is equally likely."""

    def new(self, prefix: Prefix) -> str:
        return f"{prefix}_{''.join(secrets.choice(_ID) for _ in range(ID_LENGTH))}"

    def digits(self, count: int) -> str:
        return str(secrets.randbelow(10**count)).zfill(count)

    def password(self, length: int) -> str:
        return "".join(secrets.choice(_PASSWORD) for _ in range(length))

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)
