from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.kernel.cursors import EVENTS, EXECUTIONS, decode_cursor, encode_cursor
from domain.kernel.errors import ValidationFailed


@given(st.lists(st.integers(min_value=0, max_value=10**17), min_size=1, max_size=3))
def test_a_cursor_decodes_to_the_numbers_it_was_encoded_from(numbers: list[int]) -> None:
    text = encode_cursor(EVENTS, *numbers)
    assert decode_cursor(EVENTS, text, len(numbers)) == tuple(numbers)
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=40))
def test_text_that_is_no_cursor_is_rejected(text: str) -> None:
    try:
        numbers = decode_cursor(EVENTS, text)
    except ValidationFailed:
        return
    assert decode_cursor(EVENTS, encode_cursor(EVENTS, *numbers)) == numbers


@pytest.mark.parametrize(
    ("prefix", "numbers", "count"), [(EXECUTIONS, (7,), 1), (EVENTS, (7, 8), 1), (EVENTS, (7,), 2), (EVENTS, (10**18,), 1)]
)
def test_a_cursor_of_another_list_or_with_other_numbers_is_rejected(prefix: str, numbers: tuple[int, ...], count: int) -> None:
    with pytest.raises(ValidationFailed, match="Invalid cursor"):
        decode_cursor(EVENTS, encode_cursor(prefix, *numbers), count)


def test_the_format_of_cursors_held_by_clients_does_not_change() -> None:
    assert encode_cursor(EVENTS, 1, 2) == "ZTEuMg"
    assert encode_cursor(EXECUTIONS, 42) == "eDQy"
