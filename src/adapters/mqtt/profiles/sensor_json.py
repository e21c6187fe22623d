"""Nested sensor JSON of stock firmware → one flat native telemetry payload: `{"DS18B20": {"Temperature": 21.5}}` becomes
`{"m": {"DS18B20.Temperature": 21.5}}`. Depth and count are bounded, so that a faulty device loses only its own readings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

MAX_DEPTH = 4
MAX_METRICS = 64

_encode = msgspec.json.Encoder().encode


def flatten(values: Mapping[str, Any], *, skip: Collection[str] = ()) -> dict[str, float | bool | str]:
    """Numbers, booleans and strings by dotted path, in document order; everything else is ignored."""
    flat: dict[str, float | bool | str] = {}
    for path, value in _walk_values("", values, 0):
        if path in skip or len(path) > 64:
            continue
        flat[path] = value
        if len(flat) == MAX_METRICS:
            break
    return flat


def encode_telemetry(values: Mapping[str, float | bool | str]) -> bytes:
    return _encode({"m": values})


def _walk_values(prefix: str, values: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                yield from _walk_values(path, value, depth + 1)
        elif isinstance(value, bool | int | float | str):
            yield path, value
