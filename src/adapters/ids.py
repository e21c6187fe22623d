"""Unguessable text from the operating system's generator.

Ids of what comes by the thousand begin with the time, so that a table's index of them grows at its end: with ids that fall
anywhere, each row costs a page of its own in every such index, and a batch of rows is written to the disk many times over.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from domain.kernel.ids import Prefix

_ID = "abcdefghijklmnopqrstuvwxyz0123456789"
_PASSWORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _ID
ID_LENGTH = 20
"""36^20 is 103 bits: more than enough against guessing and collision."""
STAMP_LENGTH = 8
"""The rest of such an id, 62 bits, still is: 36^8 milliseconds are 89 years."""
STAMPED_FROM_MS = 1_577_836_800_000
"""2020 began."""
STAMPED = frozenset({Prefix.EVENT, Prefix.EXECUTION, Prefix.DELIVERY, Prefix.SCHEDULE})
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""In the order in which databases sort them."""


# 252 is the largest multiple of 36 in a byte: what is above is thrown away, so that every character is equally likely.
_TO_ID = bytes(ord(_ID[byte % 36]) for byte in range(256))
_UNEVEN = bytes(range(252, 256))


_DRAWN = 8_192


class SystemIds:
    """`secrets`, nothing else; every character is equally likely. Ids are drawn some hundred at a time: the system call costs ten
    times what the id does. `now_ms` (Unix) gives ids that come by the thousand their time; without it they have none."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms
        self._drawn: list[str] = []
        self._stamp = (0, "")

    def new(self, prefix: Prefix) -> str:
        if not self._drawn:
            text = secrets.token_bytes(_DRAWN).translate(_TO_ID, _UNEVEN).decode()
            self._drawn += [text[at : at + ID_LENGTH] for at in range(0, len(text) - ID_LENGTH, ID_LENGTH)]
        drawn = self._drawn.pop()
        if self._now_ms is None or prefix not in STAMPED:
            return f"{prefix}_{drawn}"
        return f"{prefix}_{self._stamped(self._now_ms())}{drawn[STAMP_LENGTH:]}"

    def digits(self, count: int) -> str:
        return str(secrets.randbelow(10**count)).zfill(count)

    def password(self, length: int) -> str:
        return "".join(secrets.choice(_PASSWORD) for _ in range(length))

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def _stamped(self, now_ms: int) -> str:
        if self._stamp[0] != now_ms:
            self._stamp = (now_ms, stamp(now_ms))
        return self._stamp[1]


def stamp(at_ms: int) -> str:
    """Unix ms as text of fixed length that sorts as the numbers do."""
    left = max(0, at_ms - STAMPED_FROM_MS)
    text = ""
    for _ in range(STAMP_LENGTH):
        left, digit = divmod(left, 36)
        text = _DIGITS[digit] + text
    return text
