"""Validation of single-line text such as names and addresses.

Names appear in logs, mails and approval requests. A line break would forge a second log line, a bidirectional control (Unicode
UAX #9) would display other text than is stored, and a name of invisible characters would look empty.
"""

from __future__ import annotations

import re
import unicodedata

FORBIDDEN_IN_LINE = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069"
"""Control characters, line separators and bidirectional controls, as the inside of a regular-expression set."""
_FORBIDDEN_PATTERN = re.compile(f"[{FORBIDDEN_IN_LINE}]")


def single_line_fault(text: str) -> str | None:
    """What is wrong with the text, or None. Empty text has no fault here."""
    if _FORBIDDEN_PATTERN.search(text):
        return "must be a single line without control or bidirectional characters."
    if text and not any(_is_visible(character) for character in text):
        return "must contain a visible character."
    return None


def _is_visible(character: str) -> bool:
    """Letters, numbers, punctuation and symbols, except those drawn as nothing; not spaces or combining marks."""
    return unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_CHARACTERS


_BLANK_CHARACTERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Letters and a symbol that are drawn as nothing: the Hangul fillers and the blank Braille pattern."""
