"""How a key is built: `sk_live_` + 40 random characters + 6 of checksum, all `[A-Za-z0-9]`.

The checksum is no secret. It lets a typo be refused, and a scanner of leaked secrets be sure, without a look-up.
"""

from __future__ import annotations

import zlib

from domain.kernel.errors import Unauthenticated

KEY_PREFIX = "sk_live_"
RANDOM_LENGTH = 40
CHECKSUM_LENGTH = 6
DISPLAY_PREFIX_LENGTH = len(KEY_PREFIX) + 4
_BASE62_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""62^6 > 2^32, so six digits hold any CRC-32."""


def checksum(text: str) -> str:
    """CRC-32 of `text`, six base-62 digits."""
    rest = zlib.crc32(text.encode())
    digits = ""
    for _ in range(CHECKSUM_LENGTH):
        rest, digit = divmod(rest, 62)
        digits = _BASE62_DIGITS[digit] + digits
    return digits


def compose_key(random: str) -> str:
    """The whole key of `RANDOM_LENGTH` random characters."""
    return f"{KEY_PREFIX}{random}{checksum(random)}"


def display_prefix(secret: str) -> str:
    """What people recognise a key by: 4 of its 40 random characters."""
    return secret[:DISPLAY_PREFIX_LENGTH]


def check_key_format(secret: str) -> None:
    """Raises Unauthenticated unless `secret` is built like a key and its checksum is right."""
    random, given = secret[len(KEY_PREFIX) : -CHECKSUM_LENGTH], secret[-CHECKSUM_LENGTH:]
    whole = len(KEY_PREFIX) + RANDOM_LENGTH + CHECKSUM_LENGTH
    if not secret.startswith(KEY_PREFIX) or len(secret) != whole or not secret.isascii() or checksum(random) != given:
        raise Unauthenticated("This is not a whole API key; it may be cut off or mistyped. Copy it again.")
