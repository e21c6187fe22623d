"""Random ids and secrets from the operating system's generator, and the spread of retry pauses, which is no secret.

Ids of frequent resources start with a timestamp, so that an index of them grows at its end. With random ids each row touches its
own page of every such index, and a batch of rows is written to disk many times over.

The spread of retry pauses is no secret, so the ordinary random generator is enough for it.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable

from domain.kernel.ids import IdPrefix

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_ALPHANUMERIC = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _ID_ALPHABET
ID_LENGTH = 20
"""36^20 is 103 bits: more than enough against guessing and collision."""
TIMESTAMP_LENGTH = 8
"""The remaining 62 random bits are still enough. 36^8 milliseconds are 89 years."""
TIMESTAMP_EPOCH_MS = 1_577_836_800_000
"""1 January 2020, UTC."""
TIME_ORDERED_PREFIXES = frozenset({IdPrefix.EVENT, IdPrefix.EXECUTION, IdPrefix.DELIVERY, IdPrefix.SCHEDULE})
_BASE36_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""In the sort order of databases."""
# 252 is the largest multiple of 36 in a byte, and 248 that of 62: higher values are discarded, so that every character is equally
# likely.
_BYTE_TO_ID_CHARACTER = bytes(ord(_ID_ALPHABET[byte % 36]) for byte in range(256))
_BIASED_BYTES = bytes(range(252, 256))
_BYTE_TO_ALPHANUMERIC = bytes(ord(_ALPHANUMERIC[byte % 62]) for byte in range(256))
_BIASED_ALPHANUMERIC_BYTES = bytes(range(248, 256))
_RANDOM_BATCH_BYTES = 8_192


class RandomIdAndSecretGenerator:
    """Uses only `secrets`; every character is equally likely. Random text is drawn for a few hundred ids at a time, because the
    system call costs ten times as much as the id. `now_ms` (Unix) gives the time-ordered ids their timestamp; without it, all ids
    are random."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms
        self._random_texts: list[str] = []
        self._cached_timestamp = (0, "")

    def new_id(self, prefix: IdPrefix) -> str:
        if not self._random_texts:
            text = secrets.token_bytes(_RANDOM_BATCH_BYTES).translate(_BYTE_TO_ID_CHARACTER, _BIASED_BYTES).decode()
            self._random_texts += [text[at : at + ID_LENGTH] for at in range(0, len(text) - ID_LENGTH, ID_LENGTH)]
        drawn = self._random_texts.pop()
        if self._now_ms is None or prefix not in TIME_ORDERED_PREFIXES:
            return f"{prefix}_{drawn}"
        return f"{prefix}_{self._timestamp_text(self._now_ms())}{drawn[TIMESTAMP_LENGTH:]}"

    def random_digits(self, count: int) -> str:
        return str(secrets.randbelow(10**count)).zfill(count)

    def random_alphanumeric(self, length: int) -> str:
        found = b""
        while len(found) < length:
            found += secrets.token_bytes(2 * length).translate(_BYTE_TO_ALPHANUMERIC, _BIASED_ALPHANUMERIC_BYTES)
        return found[:length].decode()

    def random_bytes(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def _timestamp_text(self, now_ms: int) -> str:
        if self._cached_timestamp[0] != now_ms:
            self._cached_timestamp = (now_ms, encode_timestamp(now_ms))
        return self._cached_timestamp[1]


def encode_timestamp(at_ms: int) -> str:
    """Unix ms as fixed-length text that sorts like the numbers."""
    left = max(0, at_ms - TIMESTAMP_EPOCH_MS)
    text = ""
    for _ in range(TIMESTAMP_LENGTH):
        left, digit = divmod(left, 36)
        text = _BASE36_DIGITS[digit] + text
    return text


def random_spread() -> float:
    """-1 to 1."""
    return random.uniform(-1.0, 1.0)  # noqa: S311 - spreads load, hides nothing
