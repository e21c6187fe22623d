"""Checks of values that several parts take from callers.

Names appear in logs, mails and approval requests. A line break would forge a second log line, a bidirectional control (Unicode
UAX #9) would display other text than is stored, and a name of invisible characters would look empty.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from domain.kernel.errors import Conflict

FORBIDDEN_IN_LINE = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069"
"""Control characters, line separators and bidirectional controls, as the inside of a regular-expression set."""
_FORBIDDEN_PATTERN = re.compile(f"[{FORBIDDEN_IN_LINE}]")


def single_line_fault(text: str) -> str | None:
    """What is wrong with the text, or None. Empty text has no fault here."""
    if _FORBIDDEN_PATTERN.search(text):
        return "must be a single line without control or bidirectional characters."
    if text and not (text.isascii() and not text.isspace()) and not any(_is_visible(character) for character in text):
        return "must contain a visible character."
    return None


def _is_visible(character: str) -> bool:
    """Letters, numbers, punctuation and symbols, except those drawn as nothing; not spaces or combining marks."""
    return unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_CHARACTERS


_BLANK_CHARACTERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Letters and a symbol that are drawn as nothing: the Hangul fillers and the blank Braille pattern."""


MAX_LISTED = 1_000
"""The bound of every kind whose whole list one page shows."""


def check_capacity(count: int, code: str, what: str) -> None:
    """Call it in a transaction that locks the account, so that nothing is added after the count. `what`: who has at most `limit`
    of what, such as "An account has at most {limit} API keys". Raises Conflict with `code`."""
    if count >= MAX_LISTED:
        raise Conflict(f"{what.format(limit=MAX_LISTED)}. Delete one that is not needed any more.", code=code)


_NOT_PLACES = frozenset({"", "localtime", "posixrules", "Factory", "leapseconds"})
_PARALLEL_TREES = ("posix/", "right/")


def is_portable_timezone(name: str) -> bool:
    """False for files in the zone directory that are no zone of the IANA database: what they say depends on the machine, or
    counts leap seconds."""
    return name not in _NOT_PLACES and not name.startswith(_PARALLEL_TREES)


def is_nested_deeper_than(value: Any, levels: int) -> bool:
    """Whether more than `levels` arrays and objects lie inside each other; a scalar has none. Iterative: any depth is safe."""
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        containers = [child for one in containers for child in _children(one) if isinstance(child, dict | list)]
        if not containers:
            return False
    return bool(containers)


def _children(container: Any) -> Sequence[Any]:
    return list(container.values()) if isinstance(container, dict) else container
