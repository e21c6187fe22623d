"""Cursors: opaque, URL-safe positions in a list. The same numbers of the same life always give the same text.

The first character names the list (`e` for the event log, `d` for a device's log, `f` for the live feed, `x` for executions), so
a cursor of one list is invalid in another. The text ends with the life of the database (`life.py`): a position of another life
names nothing that can be continued.
"""

from __future__ import annotations

import base64
import binascii

from domain.kernel.errors import Gone, ValidationFailed

EVENTS = "e"
DEVICE_EVENTS = "d"
FEED = "f"
EXECUTIONS = "x"
_MAX_LENGTH = 2_048
"""The longest has a position for each of the event log's writers."""
_MAX_DIGITS = 18
"""Fits a signed 64-bit integer, the widest that the databases store."""
_MAX_LIFE = 32


def encode_cursor(prefix: str, *numbers: int, life: str = "") -> str:
    plain = prefix + ".".join(str(number) for number in numbers) + (f"@{life}" if life else "")
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def invalid_cursor() -> ValidationFailed:
    return ValidationFailed.for_field("cursor", "Invalid cursor. Use a cursor returned by a previous page, or omit it.")


def other_life() -> Gone:
    return Gone(
        "This cursor is from before the database was restored, moved or replaced by a standby: it may skip or repeat entries. "
        "Begin again without a cursor.",
        code="OTHER_LIFE",
    )


def decode_cursor(prefix: str, text: str, *counts: int, life: str | None = None) -> tuple[int, ...]:
    """The numbers of a cursor that `encode_cursor` wrote with this prefix; how many is in `counts`, without these it is one.
    Raises ValidationFailed for any other text, and Gone `OTHER_LIFE` for a cursor of another life than `life`."""
    numbers, written = read_cursor(prefix, text, *counts)
    if life is not None and written != life:
        raise other_life()
    return numbers


def read_cursor(prefix: str, text: str, *counts: int) -> tuple[tuple[int, ...], str]:
    """The numbers and the life of a cursor. Raises ValidationFailed as `decode_cursor`."""
    fault = invalid_cursor()
    if not text.isascii() or len(text) > _MAX_LENGTH:
        raise fault
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise fault from None
    body, at, life = plain.partition("@")
    parts = body[1:].split(".")
    if (
        body[:1] != prefix
        or len(parts) not in (counts or (1,))
        or not all(part.isdigit() and len(part) <= _MAX_DIGITS for part in parts)
        or (at and not (life.isalnum() and len(life) <= _MAX_LIFE))
    ):
        raise fault
    return tuple(int(part) for part in parts), life
