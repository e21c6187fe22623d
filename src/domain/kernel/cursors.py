"""Cursors: opaque, URL-safe texts that name a position in a list or in the live feed, never a row. Deleting the row ends no walk.

A position is the sort key of the last entry that was read: whole numbers and texts. A cursor also carries the kind of its list, a
digest of what the list was asked for, and the life of the database (`life.py`): a position of another list, filter or life names
nothing that can be continued. Cursors are not signed. Who writes one gets no more than by asking for the list.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from domain.kernel.errors import Gone, ValidationFailed

EVENTS = "e"
"""The event log of an account; the live feed accepts it, too."""
FEED = "f"
LIST = "l"
MAX_CURSOR_LENGTH = 4_096
"""The longest names a position for each of the event log's writers, or a name of 128 characters."""
_MAX_NUMBER = 2**63 - 1
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

Position = tuple[int | str, ...]
"""The sort key of an entry, unique in its list."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """`filters`: a digest of the list and of what it was asked for."""

    kind: str
    position: Position
    life: str = ""
    filters: str = ""

    def encode(self) -> str:
        plain = _encode([self.kind, self.life, self.filters, *self.position])
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Raises ValidationFailed for a text that `encode` did not write."""
        try:
            kind, life, filters, *position = _decode(text)
        except ValueError:
            raise invalid_cursor() from None
        if not all(isinstance(each, str) for each in (kind, life, filters)) or not all(map(_is_key, position)):
            raise invalid_cursor()
        return cls(kind, tuple(position), life, filters)

    def matches(self, *types: type) -> bool:
        """Whether the position has values of these types."""
        return tuple(map(type, self.position)) == types


def invalid_cursor() -> ValidationFailed:
    return ValidationFailed.for_field("cursor", "Invalid cursor. Use a cursor returned by a previous page, or omit it.")


def other_list() -> ValidationFailed:
    return ValidationFailed.for_field(
        "cursor",
        "is of another list, or of other filters. Send it with the path and the query of the page that returned it (only `limit` "
        "may differ), or begin again without it.",
    )


def other_life() -> Gone:
    return Gone(
        "This cursor is from before the database was restored, moved or replaced by a standby: it may skip or repeat entries. "
        "Begin again without a cursor.",
        code="OTHER_LIFE",
    )


def _decode(text: str) -> list[Any]:
    """Raises ValueError."""
    if not text.isascii() or len(text) > MAX_CURSOR_LENGTH:
        raise ValueError("no cursor")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = json.loads(raw.decode())
    except (binascii.Error, RecursionError) as error:
        raise ValueError("no cursor") from error
    if not isinstance(found, list):
        raise ValueError("no cursor")
    return found


def _is_key(value: object) -> bool:
    if isinstance(value, str):
        return "\x00" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)
    return type(value) is int and -_MAX_NUMBER <= value <= _MAX_NUMBER
