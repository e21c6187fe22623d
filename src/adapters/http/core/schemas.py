"""The shapes that cross the wire. A field is camelCase outside, snake_case inside, and checked at the border only.

Strict: `"1"` is not 1, an unknown field is a fault and not noise, and `null` is a value only where the document says so. What
comes in passes `parse_object` first (json_object.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema

from adapters.http.core.json_body import parse_json_object
from adapters.http.core.json_integers import INTEGER_TEXT, coerce_integral_floats, integer_fields
from domain.kernel.errors import FieldFault, ValidationFailed
from domain.kernel.text_validation import FORBIDDEN_IN_LINE, single_line_fault


def _validate_single_line(text: str) -> str:
    fault = single_line_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


OneLine = AfterValidator(_validate_single_line)
"""For texts that stand in lists and logs: one line that looks like what it is."""
SINGLE_LINE_SCHEMA: JsonDict = {"pattern": f"^[^{FORBIDDEN_IN_LINE}]*$"}
VISIBLE_LINE_SCHEMA: JsonDict = {"pattern": f"^[^{FORBIDDEN_IN_LINE}]*[^\\s{FORBIDDEN_IN_LINE}][^{FORBIDDEN_IN_LINE}]*$"}
"""For the document; the second also has something to see."""

DisplayName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra={**VISIBLE_LINE_SCHEMA, "examples": ["Greenhouse"]}),
]
"""What people call a thing: 1 to 64 characters, outer spaces taken off."""

Timestamp = Annotated[
    str, Field(json_schema_extra={"format": "date-time", "examples": ["2026-11-21T04:00:00.000Z"]}, max_length=40)
]
"""ISO 8601 with an offset. In requests turn it with `instant`."""


class RequestBody(BaseModel):
    """A request body. Only the camelCase names are accepted."""

    model_config = ConfigDict(
        alias_generator=to_camel, strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class EmptyBody(RequestBody):
    """For endpoints without a body: nothing, or `{}`."""


class PatchBody(RequestBody):
    """A request that changes: what is left out stays, and `null` is for those `nullable`, which it empties."""

    nullable: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def reject_nulls(cls, given: Mapping[str, Any]) -> None:
        """Raises Invalid that names the field."""
        for name, field in cls.model_fields.items():
            alias = field.alias or name
            if name not in cls.nullable and alias in given and given[alias] is None:
                raise ValidationFailed.for_field(alias, "cannot be null; leave it out to keep it as it is.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        shown = handler.resolve_ref_schema(handler(core_schema))
        for name, field in cls.model_fields.items():
            if name not in cls.nullable:
                alias = field.alias or name
                shown["properties"][alias] = without_null(shown["properties"][alias])
        return shown


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Of what may be left out, but is never null."""
    others = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and not (key == "default" and value is None)}
    return {**others[0], **rest} if len(others) == 1 else ({**rest, "anyOf": others} if others else rest)


class QueryParameters(BaseModel):
    """Query parameters: text on the wire, so numbers and booleans are read from text; unknown names are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class ResponseModel(BaseModel):
    """A response. Made with the snake_case names, written with the camelCase ones."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True)


class OkResponse(ResponseModel):
    """`{"ok": true}`"""

    ok: bool = True


class ErrorResponse(ResponseModel):
    """The one shape of every error."""

    class Detail(ResponseModel):
        field: str
        message: str

    error: str = Field(description="A stable code, such as `VALIDATION_ERROR`.", examples=["VALIDATION_ERROR"])
    message: str = Field(description="What is wrong and what to do about it.")
    details: list[Detail] | None = Field(default=None, description="The fields at fault, where there are any.")
    retry_after: int | None = Field(default=None, description="Seconds to wait, with 429.")
    request_id: str = Field(description="Also in the `X-Request-Id` header; name it when you ask for help.")


BodyT = TypeVar("BodyT", bound=BaseModel)


def read_body(model: type[BodyT], raw: bytes) -> BodyT:
    """The request body as `model`. Raises Invalid, `INVALID_JSON` or `VALIDATION_ERROR` with the fields at fault."""
    given = parse_json_object(raw)
    if issubclass(model, PatchBody):
        model.reject_nulls(given)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        fault = error
    if coerce_integral_floats(given, fault):
        try:
            return model.model_validate_json(json.dumps(given))
        except ValidationError as error:
            fault = error
    raise _validation_failure(fault, "body") from None


def read_query(model: type[BodyT], given: Mapping[str, Sequence[str]]) -> BodyT:
    """Query parameters as `model`; a name given twice counts as a fault unless the field is a list."""
    lists = {field.alias or name for name, field in model.model_fields.items() if "list" in str(field.annotation)}
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if any("\x00" in text for text in texts):
            raise ValidationFailed.for_field(name, "must not contain the character NUL.")
        if len(texts) > 1 and name not in lists:
            raise ValidationFailed.for_field(name, "is given more than once; give it once.")
        if name in integer_fields(model) and not INTEGER_TEXT.fullmatch(texts[0]):
            raise ValidationFailed.for_field(name, "must be a whole number.")
        values[name] = list(texts) if name in lists else texts[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _validation_failure(error, "query") from None


def parse_timestamp(field: str, text: str) -> int:
    """Unix milliseconds of an ISO 8601 text. Raises Invalid that names `field`."""
    from domain.kernel.clock import from_iso

    try:
        at_ms = from_iso(text)
    except (ValueError, OverflowError):
        raise ValidationFailed.for_field(
            field, "must be an ISO 8601 date-time with offset, such as 2026-11-21T04:00:00Z."
        ) from None
    return at_ms


_FIELD_MESSAGES = {
    "missing": "is required.",
    "extra_forbidden": "is not a known field here. Check the spelling.",
    "string_type": "must be text.",
    "bool_type": "must be true or false.",
    "int_type": "must be a whole number.",
    "int_parsing": "must be a whole number.",
    "float_type": "must be a number.",
    "list_type": "must be an array.",
    "dict_type": "must be an object.",
    "model_type": "must be an object.",
}


MAX_MESSAGE_LENGTH = 400
_SHOULD_PHRASE = re.compile(r"^(?:Input|Value|String|List|Dictionary|Data|Number) should (?:be )?(have|match|be)?")


def _rewrite_message(message: str) -> str:
    """Pydantic speaks of inputs; whoever reads this sent a field."""
    message = message.removeprefix("Value error, ").rstrip(".")
    if len(message) > MAX_MESSAGE_LENGTH:  # a choice among very many
        return "is not one of the values that /openapi.json lists for it."
    return _SHOULD_PHRASE.sub(lambda found: f"must {found[1] or 'be '}", message) + "."


def _validation_failure(error: ValidationError, where: str) -> ValidationFailed:
    faults = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:20]:
        field = ".".join(str(step) for step in item["loc"]) or where
        message = _FIELD_MESSAGES.get(item["type"]) or _rewrite_message(item["msg"])
        faults.append(FieldFault(field[:200], message))
    said = "; ".join(f"{fault.field}: {fault.message.rstrip('.')}" for fault in faults[:3])
    more = f"; and {len(faults) - 3} more in `details`" if len(faults) > 3 else ""
    return ValidationFailed(f"{said}{more}.", details=faults)
