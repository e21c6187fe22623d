"""JSON with exactly one form per value (RFC 8785, the JSON Canonicalization Scheme), so that a hash of it can be recomputed.

Numbers are IEEE 754 doubles there: an integer beyond 2^53 is written as the nearest double.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

_EXACT_INTEGERS: Final = 2**53
_MOST_DIGITS: Final = 21
"""ECMAScript writes larger numbers, and those below 10^-6, with an exponent."""

quote: Callable[[str], str] = encode_basestring
"""A string in quotes; control characters, quotes and backslashes are escaped, nothing else."""


def canonical_json(value: Any) -> str:
    """Raises TypeError for what JSON does not have. Numbers that JSON does not have (NaN, infinity) are null."""
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int:
        return str(value) if -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS else _double(float(value))
    if value is None:
        return "null"
    if kind is dict:
        return _canonical_object(value)
    return _other_json(value)


def _canonical_object(value: Mapping[str, Any]) -> str:
    return "{" + ",".join([f"{quote(key)}:{canonical_json(value[key])}" for key in _sorted_keys(value)]) + "}"


def _sorted_keys(keys: Iterable[str]) -> list[str]:
    """By UTF-16 code units, as the standard wants; for keys of the basic plane that is Python's order too."""
    ordered = sorted(keys)
    return ordered if all(map(str.isascii, ordered)) else sorted(ordered, key=lambda key: key.encode("utf-16-be"))


def _other_json(value: Any) -> str:
    """Of the rarer types, and of subclasses such as enumerations of strings."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical_json, value)) + "]"
    if isinstance(value, Mapping):
        return _canonical_object(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, int):
        return canonical_json(int(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


def _double(value: float) -> str:
    """As ECMAScript's Number.toString: the shortest digits that give the same double."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    exact = Decimal(repr(abs(value))).normalize().as_tuple()
    digits = "".join(map(str, exact.digits))
    return sign + _place_point(digits, len(digits) + int(exact.exponent))


def _place_point(digits: str, point: int) -> str:
    """`digits` with the decimal point after `point` of them."""
    count = len(digits)
    if count <= point <= _MOST_DIGITS:
        return digits + "0" * (point - count)
    if 0 < point <= _MOST_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
