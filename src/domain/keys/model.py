"""An API key has no permissions without a grant. Only a hash of its secret and a recognisable prefix are stored.

Format of an API key: `sk_live_` + 40 random characters + 6 characters of checksum, all `[A-Za-z0-9]`.

The checksum is not secret. With it, a mistyped key is rejected and a secret scanner is certain of a leak, without a look-up.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from domain.kernel.dataclasses import fast_frozen
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import AccountId, KeyId


@fast_frozen
@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: KeyId
    account_id: AccountId
    name: str
    prefix: str
    secret_hash: bytes
    enabled: bool
    last_used_ms: int | None
    created_ms: int
    created_by: str
    """The label of its maker."""


KEY_PREFIX = "sk_live_"
RANDOM_LENGTH = 40
CHECKSUM_LENGTH = 6
DISPLAY_PREFIX_LENGTH = len(KEY_PREFIX) + 4
_BASE62_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""62^6 > 2^32, so six digits hold any CRC-32."""


def checksum(text: str) -> str:
    """CRC-32 of `text` as six base-62 digits."""
    remainder = zlib.crc32(text.encode())
    digits = ""
    for _ in range(CHECKSUM_LENGTH):
        remainder, digit = divmod(remainder, 62)
        digits = _BASE62_DIGITS[digit] + digits
    return digits


def compose_key(random: str) -> str:
    """The full key for `RANDOM_LENGTH` random characters."""
    return f"{KEY_PREFIX}{random}{checksum(random)}"


def display_prefix(secret: str) -> str:
    """The part that is stored and displayed: the prefix and 4 of the 40 random characters."""
    return secret[:DISPLAY_PREFIX_LENGTH]


def check_key_format(secret: str) -> None:
    """Raises Unauthenticated unless `secret` has the format of a key and a correct checksum."""
    random, given = secret[len(KEY_PREFIX) : -CHECKSUM_LENGTH], secret[-CHECKSUM_LENGTH:]
    total_length = len(KEY_PREFIX) + RANDOM_LENGTH + CHECKSUM_LENGTH
    if not secret.startswith(KEY_PREFIX) or len(secret) != total_length or not secret.isascii() or checksum(random) != given:
        raise Unauthenticated("Malformed API key: it may be truncated or mistyped. Copy it again.")
