"""Cursors: opaque, URL-safe positions in a list. The same numbers always give the same text.

The first character names the list (`e` for the event log, `d` for a device's log, `f` for the live feed, `x` for executions), so
a cursor of one list is invalid in another.
"""

from __future__ import annotations

import base64
import binascii

from domain.kernel.errors import ValidationFailed

EVENTS = "e"
DEVICE_EVENTS = "d"
FEED = "f"
EXECUTIONS = "x"
_MAX_LENGTH = 2_048
"""The longest has a position for each of the event log's writers."""
_MAX_DIGITS = 18
"""Fits a signed 64-bit integer, the widest that the databases store."""


def encode_cursor(prefix: str, *numbers: int) -> str:
    plain = prefix + ".".join(str(number) for number in numbers)
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def invalid_cursor() -> ValidationFailed:
    return ValidationFailed.for_field("cursor", "Invalid cursor. Use a cursor returned by a previous page, or omit it.")


def decode_cursor(prefix: str, text: str, *counts: int) -> tuple[int, ...]:
    """The numbers of a cursor that `encode_cursor` wrote with this prefix; how many is in `counts`, without these it is one.
    Raises ValidationFailed for any other text."""
    fault = invalid_cursor()
    if not text.isascii() or len(text) > _MAX_LENGTH:
        raise fault
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise fault from None
    parts = plain[1:].split(".")
    if (
        plain[:1] != prefix
        or len(parts) not in (counts or (1,))
        or not all(part.isdigit() and len(part) <= _MAX_DIGITS for part in parts)
    ):
        raise fault
    return tuple(int(part) for part in parts)
