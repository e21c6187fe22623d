"""What an API key looks like, and its checksum."""

from __future__ import annotations

import binascii
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.kernel.errors import Unauthenticated
from domain.keys.model import KEY_PREFIX, check_key_format, checksum, compose_key

LETTERS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", min_size=40, max_size=40)


@given(LETTERS)
def test_a_composed_key_has_a_valid_format(random: str) -> None:
    check_key_format(compose_key(random))


@given(LETTERS, st.integers(8, 53), st.sampled_from("AZaz09"))
def test_one_wrong_character_is_detected(random: str, at: int, other: str) -> None:
    key = compose_key(random)
    if key[at] != other:
        with pytest.raises(Unauthenticated):
            check_key_format(key[:at] + other + key[at + 1 :])


@given(st.text(max_size=80))
def test_other_text_is_not_a_key(text: str) -> None:
    with pytest.raises(Unauthenticated):
        check_key_format(text)
    with pytest.raises(Unauthenticated):
        check_key_format(KEY_PREFIX + text[:45])


@given(LETTERS)
def test_the_checksum_is_the_crc_32_in_base_62_so_that_scanners_can_compute_it(random: str) -> None:
    digits = string.digits + string.ascii_uppercase + string.ascii_lowercase
    value = 0
    for digit in checksum(random):
        value = value * 62 + digits.index(digit)
    assert value == binascii.crc32(random.encode())
