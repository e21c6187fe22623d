"""Reads request bodies and query parameters into models, and words the faults for the caller.

The bytes of a body become a JSON object once, before any model validates it. Some legal JSON is refused there, because a database
or a reader further in cannot hold it: deep nesting, NUL, lone surrogates, names given twice in one object, and numbers outside
the range of an IEEE double.

JSON has one kind of number, and JSON Schema, the language of the OpenAPI document, treats 10, 10.0 and 1e1 as the same integer;
request bodies follow it. A query string is text: there an integer is written in digits only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from adapters.http.core.schemas import PatchBody
from domain.kernel.checks import is_nested_deeper_than
from domain.kernel.clock import from_iso
from domain.kernel.errors import FieldError, ValidationFailed

ModelT = TypeVar("ModelT", bound=BaseModel)
INTEGER_TEXT = re.compile(r"-?[0-9]+")


def read_body(model: type[ModelT], raw: bytes) -> ModelT:
    """The request body as `model`. Raises ValidationFailed: `INVALID_JSON`, or `VALIDATION_ERROR` with the fields at fault."""
    content = parse_json_object(raw)
    if issubclass(model, PatchBody):
        model.reject_nulls(content)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fault = error
    if _coerce_integral_floats(content, fault):
        try:
            return model.model_validate(content)
        except ValidationError as error:
            fault = error
    raise _validation_failure(fault, "body") from None


def read_query(model: type[ModelT], given: Mapping[str, Sequence[str]]) -> ModelT:
    """Query parameters as `model`. A name that occurs twice is a fault unless the field is a list. Raises ValidationFailed."""
    lists = _list_fields(model)
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if any("\x00" in text for text in texts):
            raise ValidationFailed.for_field(name, "must not contain the character NUL.")
        if len(texts) > 1 and name not in lists:
            raise ValidationFailed.for_field(name, "occurs more than once. Give it once.")
        if name in _integer_fields(model) and not INTEGER_TEXT.fullmatch(texts[0]):
            raise ValidationFailed.for_field(name, "must be a whole number.")
        values[name] = list(texts) if name in lists else texts[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _validation_failure(error, "query") from None


def parse_timestamp(field: str, text: str) -> int:
    """Unix milliseconds of an ISO 8601 text. Raises ValidationFailed that names `field`."""
    try:
        return from_iso(text)
    except (ValueError, OverflowError):
        raise ValidationFailed.for_field(
            field, "must be an ISO 8601 date-time with offset, such as 2030-01-31T04:00:00Z."
        ) from None


def _coerce_integral_floats(value: Any, error: ValidationError) -> bool:
    """Replace `10.0` by `10` wherever the model expected an integer, in place. Returns whether anything was replaced."""
    replaced = False
    for item in error.errors(include_url=False, include_context=False):
        if item["type"] == "int_type" and isinstance(item["input"], float) and item["input"].is_integer():
            replaced |= _replace_at_path(value, item["loc"], int(item["input"]))
    return replaced


def _replace_at_path(value: Any, path: tuple[int | str, ...], number: int) -> bool:
    *steps, last = path
    try:
        for step in steps:
            value = value[step]
        if not isinstance(value[last], float):
            return False
    except (KeyError, IndexError, TypeError):
        return False  # the path contains the name of a union member, which is not a place in the body
    value[last] = number
    return True


@cache
def _integer_fields(model: type[BaseModel]) -> frozenset[str]:
    """The names of the query parameters that are integers. A field with a `BeforeValidator` reads its text itself."""
    return frozenset(
        field.alias or name
        for name, field in model.model_fields.items()
        if int in (field.annotation, *get_args(field.annotation))
        and not any(isinstance(each, BeforeValidator) for each in field.metadata)
    )


@cache
def _list_fields(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items() if "list" in str(field.annotation))


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
        raise ValidationFailed.for_field(
            field, "must not contain the character NUL (\\u0000): no database can hold it. Leave it out."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValidationFailed.for_field(field, "contains half of a surrogate pair, which is not valid text.") from None


MAX_FAULTS = 20
MAX_FAULTS_IN_MESSAGE = 3
MAX_FIELD_LENGTH = 200
MAX_MESSAGE_LENGTH = 400
_FIELD_MESSAGES = {
    "missing": "is required.",
    "extra_forbidden": "is not a known field. Check the spelling.",
    "string_type": "must be text.",
    "bool_type": "must be true or false.",
    "int_type": "must be a whole number.",
    "int_parsing": "must be a whole number.",
    "float_type": "must be a number.",
    "float_parsing": "must be a number.",
    "bool_parsing": "must be true or false.",
    "none_required": "must be null.",
    "list_type": "must be an array.",
    "dict_type": "must be an object.",
    "model_type": "must be an object.",
}
_UNION_BRANCHES = frozenset({"bool", "int", "float", "str", "constrained-str"})
"""What Pydantic adds to the path of a fault in a union. The caller sent one field."""
_OTHER_BRANCH = re.compile("_(type|parsing)$")
_SHOULD_PHRASE = re.compile(r"^(?:Input|Value|String|List|Dictionary|Data|Number) should (?:be )?(have|match|be)?")


def _validation_failure(error: ValidationError, root: str) -> ValidationFailed:
    """`root` names the fault of the whole input: `body` or `query`."""
    faults = [
        FieldError((field or root)[:MAX_FIELD_LENGTH], _field_message(items)) for field, items in _items_by_field(error).items()
    ]
    shown = faults[:MAX_FAULTS_IN_MESSAGE]
    text = "; ".join(f"{fault.field}: {fault.message.rstrip('.')}" for fault in shown)
    more = f"; and {len(faults) - len(shown)} more in `details`" if len(faults) > len(shown) else ""
    return ValidationFailed(f"{text}{more}.", details=faults)


def _items_by_field(error: ValidationError) -> dict[str, list[ErrorDetails]]:
    """The faults of each field. A field whose type is a union has one for each of its branches."""
    fields: dict[str, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False)[:MAX_FAULTS]:
        steps = item["loc"][:-1] if item["loc"] and item["loc"][-1] in _UNION_BRANCHES else item["loc"]
        fields.setdefault(".".join(map(str, steps)), []).append(item)
    return fields


def _field_message(items: Sequence[ErrorDetails]) -> str:
    """Of a union, the fault in the branch that has the type of the value; if none has, all types."""
    near = [item for item in items if not _OTHER_BRANCH.search(item["type"])]
    messages = [_item_message(item) for item in near[:1] or items]
    *some, last = (message.removeprefix("must be ").rstrip(".") for message in messages)
    return f"must be {', '.join(some)} or {last}." if some else messages[0]


def _item_message(item: ErrorDetails) -> str:
    if item["type"] in ("too_long", "too_short"):  # Pydantic counts "items after validation", of a text too
        word, bound = ("most", "max_length") if item["type"] == "too_long" else ("least", "min_length")
        number, unit = item["ctx"][bound], "character" if isinstance(item["input"], str) else "item"
        return f"must have at {word} {number} {unit}{'' if number == 1 else 's'}."
    return _FIELD_MESSAGES.get(item["type"]) or _rewrite_message(item["msg"])


def _rewrite_message(message: str) -> str:
    """Pydantic describes an "input"; the caller sent a field."""
    message = message.removeprefix("Value error, ").rstrip(".")
    if len(message) > MAX_MESSAGE_LENGTH:  # it lists the values of a large enumeration
        return "is not one of the values that /openapi.json lists for it."
    return _SHOULD_PHRASE.sub(lambda found: f"must {found[1] or 'be '}", message) + "."
