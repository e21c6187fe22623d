"""The shapes that cross the wire. A field is camelCase outside, snake_case inside, and checked at the border only.

Strict: `"1"` is not 1, an unknown field is a fault and not noise, and `null` is a value only where the document says so. What
comes in passes `parse_object` first (json_object.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema

from domain.kernel.errors import ValidationFailed
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
