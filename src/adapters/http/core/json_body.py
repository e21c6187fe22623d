"""Parses the bytes of a request body into a JSON object, once, before any model validates it.

Some legal JSON is refused, because a database or a reader further in cannot hold it: deep nesting, NUL, lone surrogates, names
given twice in one object, and numbers outside the range of an IEEE double.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from domain.kernel.checks import is_nested_deeper_than
from domain.kernel.errors import ValidationFailed

MAX_DEPTH = 32

MAX_NUMBER_LENGTH = 400
"""A double needs at most 309 digits before the point. Reading a longer integer costs quadratic time."""

MAX_SAFE_INTEGER_LENGTH = 15
"""Integers of up to 15 digits are exact as doubles and need no range check."""


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`. Raises ValidationFailed: `INVALID_JSON`, or `VALIDATION_ERROR` for text that cannot be stored."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _invalid_json("The body is not valid UTF-8. Send JSON encoded as UTF-8.") from None
    try:
        value = json.loads(
            text,
            parse_constant=_reject_constant,
            parse_float=_parse_double,
            parse_int=_parse_integer,
            object_pairs_hook=_reject_duplicate_names,
        )
    except json.JSONDecodeError as error:
        raise _invalid_json(f"The body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise _nested_too_deeply() from None
    if not isinstance(value, dict):
        raise _invalid_json("The body must be a JSON object, such as {}.")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and is_nested_deeper_than(value, MAX_DEPTH):
        raise _nested_too_deeply()
    if "\\u" in text:  # only an escape can put NUL or a lone surrogate into JSON text that is valid UTF-8
        for path, string in _iterate_strings(value, ""):
            _check_text(path, string)
    return value


def _invalid_json(message: str) -> ValidationFailed:
    return ValidationFailed(message, code="INVALID_JSON")


def _nested_too_deeply() -> ValidationFailed:
    return _invalid_json(f"The body is nested deeper than {MAX_DEPTH} levels. Send a flatter structure.")


def _reject_constant(name: str) -> NoReturn:
    raise _invalid_json(f"The body contains {name}, which is not a JSON number.")


def _parse_double(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _invalid_json(f"The number {text[:24]} is outside the range of an IEEE double.")
    return value


def _parse_integer(text: str) -> int:
    if len(text) > MAX_SAFE_INTEGER_LENGTH:
        if len(text) > MAX_NUMBER_LENGTH:
            raise _invalid_json("A number in the body is outside the range of an IEEE double.")
        _parse_double(text)
    return int(text)


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise _invalid_json(f"The name {duplicate[:64]!r} occurs twice in one object. Give it once.")
    return members


def _iterate_strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every string in `value`, member names included, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, child in value.items():
            yield path or "body", name
            yield from _iterate_strings(child, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _iterate_strings(child, f"{path}.{index}")


def _check_text(path: str, text: str) -> None:
    field = path.encode("ascii", "backslashreplace").decode()
    if "\x00" in text:
        raise ValidationFailed.for_field(field, "must not contain the character NUL (\\u0000).")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValidationFailed.for_field(field, "contains half of a surrogate pair, which is not valid text.") from None
