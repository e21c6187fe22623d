"""Reads request bodies and query parameters into models and words the faults for the caller.

What counts as an integer.

JSON has one kind of number, and JSON Schema, the language of the OpenAPI document, treats 10, 10.0 and 1e1 as the same integer;
request bodies follow it. A query string is text: there an integer is written in digits only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from adapters.http.core.json_body import parse_json_object
from adapters.http.core.schemas import PatchBody
from domain.kernel.clock import from_iso
from domain.kernel.errors import FieldError, ValidationFailed

INTEGER_TEXT = re.compile(r"-?[0-9]+")


def coerce_integral_floats(value: Any, error: ValidationError) -> bool:
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
def integer_fields(model: type[BaseModel]) -> frozenset[str]:
    """The names of the query parameters that are integers. A field with a `BeforeValidator` reads its text itself."""
    return frozenset(
        field.alias or name
        for name, field in model.model_fields.items()
        if int in (field.annotation, *get_args(field.annotation))
        and not any(isinstance(each, BeforeValidator) for each in field.metadata)
    )


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

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_body(model: type[ModelT], raw: bytes) -> ModelT:
    """The request body as `model`. Raises ValidationFailed: `INVALID_JSON`, or `VALIDATION_ERROR` with the fields at fault."""
    content = parse_json_object(raw)
    if issubclass(model, PatchBody):
        model.reject_nulls(content)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fault = error
    if coerce_integral_floats(content, fault):
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
        if name in integer_fields(model) and not INTEGER_TEXT.fullmatch(texts[0]):
            raise ValidationFailed.for_field(name, "must be a whole number.")
        values[name] = list(texts) if name in lists else texts[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _validation_failure(error, "query") from None


@functools.cache
def _list_fields(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items() if "list" in str(field.annotation))


def parse_timestamp(field: str, text: str) -> int:
    """Unix milliseconds of an ISO 8601 text. Raises ValidationFailed that names `field`."""
    try:
        return from_iso(text)
    except (ValueError, OverflowError):
        raise ValidationFailed.for_field(
            field, "must be an ISO 8601 date-time with offset, such as 2030-01-31T04:00:00Z."
        ) from None


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
