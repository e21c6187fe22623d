"""One folding: what differs only in case or in how an accent is composed is one text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.kernel.folding import MAX_TERMS, fold, matching, search_terms


@pytest.mark.parametrize(
    ("one", "other"),
    [("Насос", "НАСОС"), ("Ölpumpe", "O\u0308LPUMPE"), ("Écluse", "ÉCLUSE"), ("Ωμέγας", "ΩΜΈΓΑΣ"), ("Straße", "STRASSE")],
)
def test_case_and_composition_do_not_matter(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@given(st.text())
def test_a_folded_text_is_in_one_form(text: str) -> None:
    folded = fold(text)
    assert unicodedata.is_normalized("NFC", folded)
    assert fold(folded) == folded == fold(unicodedata.normalize("NFD", text))


def found_by(names: Sequence[str], text: str, names_of: Callable[[str], Iterable[str | None]]) -> list[str]:
    return [name for _, name in sorted(matching(names, text, names_of), key=lambda pair: pair[0])]


@given(st.text(min_size=1, max_size=40))
def test_a_name_is_found_by_itself(name: str) -> None:
    assert found_by([name], '"' + name.replace('"', " ") + '"', lambda each: [each.replace('"', " ")]) == [name]


def test_words_and_phrases_are_bounded() -> None:
    assert len(search_terms("a " * 100)) == MAX_TERMS
    assert search_terms(' "" " " ') == ()


def test_word_beginnings_come_first() -> None:
    names = ["Rebuilding", "Old building", "building-site"]
    assert found_by(names, "building", lambda each: [each, None]) == ["Old building", "building-site", "Rebuilding"]
