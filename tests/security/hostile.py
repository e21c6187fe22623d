"""Hostile values, and the places of a request for them; the places come from the OpenAPI document, so new fields are included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NO_JSON = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    "9" * 400,
    "-" + "9" * 5_000,
    "01",
    "0x10",
    "'a'",
    r'"\u0000"',
    r'"a\u0000b"',
    r'"\ud800"',
    r'"\udfff\ud800"',
    r'{"a": 1, "a": 2}',
    r'{"\u0000": 1}',
    r'{"\ud800": 1}',
    "[" * 40 + "]" * 40,
    '{"a":' * 40 + "1" + "}" * 40,
]
"""Malformed or forbidden JSON texts, refused in every place."""

ODD = [
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "1e-320",
    "1.5",
    "-1",
    "0",
    "-0.0",
    "2147483648",
    "99999999999999",
    "null",
    "true",
    "[]",
    "{}",
    "[null]",
    '""',
    '" "',
    '"null"',
    '"-1"',
    '"' + "a" * 3_000 + '"',
    '"\\u202e\\ufeff\\u200b"',
    '"\\ud83d\\ude00"',
    '"\\u0001\\u001f\\u007f"',
    '"%s%n{0}${jndi:x}"',
    '"\' OR 1=1 --"',
    '"..\\/..\\/etc"',
    '"*"',
    '["*", "*"]',
    '"2026-02-30T99:99:99Z"',
    '"0000-00-00T00:00:00Z"',
    '"9999-12-31T23:59:59.999Z"',
    '"+99999-01-01T00:00:00Z"',
    '"FREQ=SECONDLY"',
    '"FREQ=DAILY;INTERVAL=9223372036854775808"',
    '{"$ref": "#"}',
    '{"type": 5}',
    '{"pattern": "(a+)+$", "$ref": "http://127.0.0.1:9/"}',
]
"""JSON that may be right or wrong for a field, but never breaks anything."""

ODD_QUERY = [
    "",
    "%00",
    "a%00b",
    "%ED%A0%80",
    "%FF%FE",
    "-1",
    "0",
    "1.5",
    "1e9",
    "NaN",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 400,
    "a" * 3_000,
    "%27%20OR%201=1--",
    "null",
    "true",
    "%E2%80%AE",
    "..%2F..%2Fetc",
    "eA",
    "eC05",
    "*",
    "%D9%A3",
    "+5",
    "%205",
    "1_000",
]

ODD_PATH = [
    "%00",
    "%ED%A0%80",
    "%FF",
    "%2E%2E",
    "%2E%2E%2F",
    "..%2F..%2Fkeys",
    "x%2Fcommand",
    "x%5Cy",
    "%20",
    "a" * 200,
    "%0d%0aX-A:1",
    "'%20OR%201=1--",
    "*",
    "null",
    "-1",
    "9223372036854775808",
    "%D9%A3",
    "dev_%00",
    "DEV_UB2TBOQ9JPSRIUJK0NOV",
    "%F0%9F%98%80",
    ";",
    "?",
]

Where = tuple[str | int, ...]


def fields(schema: dict[str, Any], document: dict[str, Any], depth: int = 0) -> Iterator[Where]:
    """The path of each possible field of a body; `()` is the body itself."""
    yield ()
    for one in _schemas(schema, document):
        if depth > 4:
            continue
        for name, inner in one.get("properties", {}).items():
            for path in fields(inner, document, depth + 1):
                yield (name, *path)
        if "items" in one:
            for path in fields(one["items"], document, depth + 1):
                yield (0, *path)
        if isinstance(one.get("additionalProperties"), dict):
            yield ("extra",)


def _schemas(schema: dict[str, Any], document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from _schemas(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _schemas(one, document)
    else:
        yield schema


def with_value_at(body: Any, where: Where, value: Any) -> Any:
    """`body` with `value` at `where`; missing parents are created."""
    if not where:
        return value
    step, *rest = where
    if isinstance(step, int):
        items: list[Any] = body if isinstance(body, list) and body else [None]
        return [with_value_at(items[0], tuple(rest), value), *items[1:]]
    present: dict[str, Any] = body if isinstance(body, dict) else {}
    return present | {step: with_value_at(present.get(step), tuple(rest), value)}
