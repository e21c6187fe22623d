"""JSON to dataclasses and back. Unknown fields are ignored: a newer service may add some."""

from __future__ import annotations

import dataclasses
import enum
import re
import types
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from latchboard_client.errors import ResponseError


class Unset(enum.Enum):
    """The type of `UNSET`: a field that is left out, which is not the same as null."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@cache
def json_name(name: str) -> str:
    """`ttl_seconds` → `ttlSeconds`; `from_` → `from`."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name.rstrip("_"))


def encode(value: Any) -> Any:
    """What `json.dumps` takes; `UNSET` fields are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {json_name(field.name): getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: encode(one) for name, one in value.items() if one is not UNSET}
    if isinstance(value, list | tuple):
        return [encode(one) for one in value]
    if isinstance(value, datetime):
        return timestamp_text(value)
    return value


def timestamp_text(value: datetime) -> str:
    """ISO 8601 in UTC. Raises ValueError for a time without a zone."""
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone. Use datetime.now(UTC), or astimezone().")
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def query_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return timestamp_text(value) if isinstance(value, datetime) else str(value)


def decode(shape: Any, value: Any) -> Any:
    """`value` as `shape`, a type of `models`. Raises ResponseError."""
    try:
        return _decode(shape, value)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ResponseError(f"The response is no {shape}: {error}") from error


def _decode(shape: Any, value: Any) -> Any:
    if isinstance(shape, type) and dataclasses.is_dataclass(shape):
        hints = _hints(shape)
        return shape(**{name: _decode(hints[name], value[key]) for name, key in _fields(shape) if key in value})
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in (Union, types.UnionType):
        return _decode(next((one for one in arguments if _fits(one, value)), Any), value)
    if origin is list:
        return [_decode(arguments[0], one) for one in value]
    if origin is dict:
        return {name: _decode(arguments[1], one) for name, one in value.items()}
    return datetime.fromisoformat(value) if shape is datetime else value


def _fits(shape: Any, value: Any) -> bool:
    """Whether a value is of this member of a union."""
    if isinstance(shape, type) and dataclasses.is_dataclass(shape):
        return isinstance(value, dict) and _required(shape) <= value.keys() and _constants(shape).items() <= value.items()
    if get_origin(shape) is list:
        return isinstance(value, list) and all(_fits(get_args(shape)[0], one) for one in value[:1])
    if get_origin(shape) is Literal:
        return value in get_args(shape)
    expected: Any = get_origin(shape) or {datetime: str, float: (int, float)}.get(shape, shape)
    return shape is Any or isinstance(value, expected)


@cache
def _hints(shape: type) -> dict[str, Any]:
    return get_type_hints(shape)


@cache
def _fields(shape: type) -> list[tuple[str, str]]:
    return [(field.name, json_name(field.name)) for field in dataclasses.fields(shape)]


@cache
def _required(shape: type) -> set[str]:
    return {json_name(field.name) for field in dataclasses.fields(shape) if field.default is dataclasses.MISSING}


@cache
def _constants(shape: type) -> dict[str, Any]:
    """The fields that have one possible value, such as an event's `type`."""
    literals = {name: get_args(hint) for name, hint in _hints(shape).items() if get_origin(hint) is Literal}
    return {json_name(name): values[0] for name, values in literals.items() if len(values) == 1}
