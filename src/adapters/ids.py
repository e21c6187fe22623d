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


_DRAWN = 8_192


class SystemIds:
    """`secrets`, nothing else; every character is equally likely. Ids are drawn some hundred at a time: the system call costs ten
    times what the id does."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def new(self, prefix: Prefix) -> str:
        try:
            return f"{prefix}_{self._drawn.pop()}"
        except IndexError:
            text = secrets.token_bytes(_DRAWN).translate(_TO_ID, _UNEVEN).decode()
            self._drawn += [text[at : at + ID_LENGTH] for at in range(0, len(text) - ID_LENGTH, ID_LENGTH)]
            return f"{prefix}_{self._drawn.pop()}"

    def digits(self, count: int) -> str:
        return str(secrets.randbelow(10**count)).zfill(count)

    def password(self, length: int) -> str:
        return "".join(secrets.choice(_PASSWORD) for _ in range(length))

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)
