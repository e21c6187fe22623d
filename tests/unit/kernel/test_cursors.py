from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.kernel.cursors import LIST, Cursor
from domain.kernel.errors import ValidationFailed

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
KEYS = st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1) | NAMES


@given(st.lists(KEYS, max_size=4), NAMES, NAMES)
def test_a_cursor_decodes_to_what_it_was_encoded_from(position: list[int | str], life: str, filters: str) -> None:
    cursor = Cursor(LIST, tuple(position), life, filters)
    assert Cursor.decode(cursor.encode()) == cursor
    assert cursor.encode().replace("-", "").replace("_", "").isalnum()
    assert cursor.matches(*map(type, position))


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")))
def test_text_that_is_no_cursor_is_rejected(text: str) -> None:
    with pytest.raises(ValidationFailed, match="Invalid cursor"):
        Cursor.decode(text)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '["l","",""',
        '["l","",1]',
        '["l","","",1.5]',
        '["l","","",true]',
        '["l","","",null]',
        '["l","","",[1]]',
        '["l","","","\\u0000"]',
        '["l","","","\\ud800"]',
        f'["l","","",{2**63}]',
        "[" * 3_000,
    ],
)
def test_what_no_list_can_hold_is_rejected(content: str) -> None:
    with pytest.raises(ValidationFailed, match="Invalid cursor"):
        Cursor.decode(base64.urlsafe_b64encode(content.encode()).decode().rstrip("="))
