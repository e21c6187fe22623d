"""A JSON object out of the bytes of a request, before any model sees it. A JSON parser answers other questions than we ask:
depth, NUL, lone surrogates, names given twice and numbers that no double holds are legal JSON, and each of them breaks a database
or a reader further in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from domain.kernel.errors import ValidationFailed

MAX_DEPTH = 32
MAX_NUMBER_LENGTH = 400
"""A double needs at most 309 digits before the point; longer integers cost quadratic time to read and are never meant."""


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`, free of all that JSON allows and we do not."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValidationFailed("The body is not UTF-8. Send JSON in UTF-8.", code="INVALID_JSON") from None
    _check_depth(raw)
    try:
        value = json.loads(
            text,
            parse_constant=_reject_constant,
            parse_float=_parse_double,
            parse_int=_parse_integer,
            object_pairs_hook=_reject_duplicate_names,
        )
    except json.JSONDecodeError as error:
        raise ValidationFailed(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", code="INVALID_JSON"
        ) from None
    if not isinstance(value, dict):
        raise ValidationFailed("The body must be a JSON object, such as {}.", code="INVALID_JSON")
    if "\\u" in text:  # the only way by which NUL and lone surrogates get into a JSON text that is UTF-8
        for path, string in _iterate_strings(value, ""):
            _check_text(path, string)
    return value


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def _check_depth(raw: bytes) -> None:
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", raw)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValidationFailed(f"The body is nested deeper than {MAX_DEPTH} levels. Send it flatter.", code="INVALID_JSON")


def _reject_constant(name: str) -> NoReturn:
    raise ValidationFailed(f"The body contains {name}, which is not a JSON number.", code="INVALID_JSON")


def _parse_double(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValidationFailed(f"The number {text[:24]} is out of the range of IEEE double.", code="INVALID_JSON")
    return value


def _parse_integer(text: str) -> int:
    if len(text) > 15:
        if len(text) > MAX_NUMBER_LENGTH:
            raise ValidationFailed("A number in the body is out of the range of IEEE double.", code="INVALID_JSON")
        _parse_double(text)
    return int(text)


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationFailed(f"The name {twice[:64]!r} stands twice in one object. Give it once.", code="INVALID_JSON")
    return made


def _iterate_strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield path or "body", name
            yield from _iterate_strings(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _iterate_strings(inner, f"{path}.{index}")


def _check_text(path: str, text: str) -> None:
    shown = path.encode("ascii", "backslashreplace").decode()
    if "\x00" in text:
        raise ValidationFailed.for_field(shown, "must not contain the character NUL (\\u0000).")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValidationFailed.for_field(shown, "contains half of a surrogate pair, which is not text.") from None
