"""Text on one line that looks like what it is.

Names stand in the log, in mails and before the eyes of whoever approves a command. A line break in one forges a second line, a
control of writing direction (Unicode UAX #9) shows another text than is stored, and one of invisible characters looks like none.
"""

from __future__ import annotations

import re
import unicodedata

FORBIDDEN_IN_LINE = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069"
"""Controls, separators, and controls that override or isolate a direction: the set of a regular expression."""
_FORBIDDEN_PATTERN = re.compile(f"[{FORBIDDEN_IN_LINE}]")


def single_line_fault(text: str) -> str | None:
    """What is wrong with a text that should be one honest line; empty text is not asked about."""
    if _FORBIDDEN_PATTERN.search(text):
        return "must be one line, without control characters or marks that turn its direction."
    if text and not any(_is_visible(character) for character in text):
        return "must have something that can be seen."
    return None


def _is_visible(character: str) -> bool:
    """Letters, numbers, punctuation, symbols; not spaces, marks by themselves, or what has no shape."""
    return unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_CHARACTERS


_BLANK_CHARACTERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Letters and a symbol that are drawn as nothing: Hangul fillers and the empty Braille pattern."""
