"""Reads request bodies and query parameters into models and words the faults for the caller."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from adapters.http.core.json_body import parse_json_object
from adapters.http.core.json_integers import INTEGER_TEXT, coerce_integral_floats, integer_fields
from adapters.http.core.schemas import PatchBody
from domain.kernel.clock import from_iso
from domain.kernel.errors import FieldFault, ValidationFailed

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
    "list_type": "must be an array.",
    "dict_type": "must be an object.",
    "model_type": "must be an object.",
}
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
    lists = {field.alias or name for name, field in model.model_fields.items() if "list" in str(field.annotation)}
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


def parse_timestamp(field: str, text: str) -> int:
    """Unix milliseconds of an ISO 8601 text. Raises ValidationFailed that names `field`."""
    try:
        return from_iso(text)
    except (ValueError, OverflowError):
        raise ValidationFailed.for_field(
            field, "must be an ISO 8601 date-time with offset, such as 2026-11-21T04:00:00Z."
        ) from None


def _validation_failure(error: ValidationError, root: str) -> ValidationFailed:
    """`root` names the fault of the whole input: `body` or `query`."""
    faults = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:MAX_FAULTS]:
        field = ".".join(str(step) for step in item["loc"]) or root
        message = _FIELD_MESSAGES.get(item["type"]) or _rewrite_message(item["msg"])
        faults.append(FieldFault(field[:MAX_FIELD_LENGTH], message))
    shown = faults[:MAX_FAULTS_IN_MESSAGE]
    text = "; ".join(f"{fault.field}: {fault.message.rstrip('.')}" for fault in shown)
    more = f"; and {len(faults) - len(shown)} more in `details`" if len(faults) > len(shown) else ""
    return ValidationFailed(f"{text}{more}.", details=faults)


def _rewrite_message(message: str) -> str:
    """Pydantic describes an "input"; the caller sent a field."""
    message = message.removeprefix("Value error, ").rstrip(".")
    if len(message) > MAX_MESSAGE_LENGTH:  # it lists the values of a large enumeration
        return "is not one of the values that /openapi.json lists for it."
    return _SHOULD_PHRASE.sub(lambda found: f"must {found[1] or 'be '}", message) + "."
