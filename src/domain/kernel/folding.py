"""One folding of text, for whatever is found by its own words: the stored side and the asked side go through it alike.

Two texts fold to the same one if they differ only in case or in how an accent is composed (Unicode, canonical caseless matching):
`Насос` and `НАСОС`, `Ωμέγας` and `ΩΜΈΓΑΣ`, `Straße` and `STRASSE`. A database knows the case of a–z only, or that of its locale;
so the folded text is stored beside the text itself. It serves to find. It never decides whether two addresses or ids are one:
`ß` and `ss` are two mailboxes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Entry = TypeVar("Entry")
MAX_TERMS = 8

WORD_START = "\x1f"
"""Stands before each word of a search text. No name can contain it."""
_TERM = re.compile(r'"([^"]*)"?|([^\s"]+)')


def fold(text: str) -> str:
    """The text without case, in NFC."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def search_text(fields: Iterable[str | None]) -> str:
    """What `search_term` is looked for in: the folded fields, one a line, each word after `WORD_START`."""
    return "\n".join(_with_word_starts(fold(" ".join(field.split()))) for field in fields if field)


def search_terms(text: str) -> tuple[str, ...]:
    """The words of what somebody looks for, and its phrases: what stands in quotes. At most `MAX_TERMS` of them, each in the
    form of a search text, so that it begins with `WORD_START`, unless with a sign."""
    found = (" ".join((quoted or word).split()) for quoted, word in _TERM.findall(fold(text)))
    return tuple(_with_word_starts(term) for term in found if term)[:MAX_TERMS]


def matching(
    entries: Iterable[Entry], text: str, names_of: Callable[[Entry], Iterable[str | None]]
) -> Iterator[tuple[int, Entry]]:
    """The entries that have all terms of `text` in their names, each with its rank: 0 if all of them begin words, else 1."""
    terms = search_terms(text)
    for entry in entries:
        names = search_text(names_of(entry))
        if all(inside(term) in names for term in terms):
            yield int(not all(term in names for term in terms)), entry


def inside(term: str) -> str:
    """The term where it need not begin a word."""
    return term.removeprefix(WORD_START)


def _with_word_starts(text: str) -> str:
    pieces: list[str] = []
    in_word = False
    for sign in text:
        was_in_word, in_word = in_word, _is_of_word(sign)
        pieces.append(WORD_START + sign if in_word and not was_in_word else sign)
    return "".join(pieces)


def _is_of_word(sign: str) -> bool:
    """Letters, numbers and the marks on them."""
    return sign.isalnum() or unicodedata.category(sign)[0] == "M"
