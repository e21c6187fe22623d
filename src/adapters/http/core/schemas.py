"""Base classes and field types of request and response models, and the JSON Schemas made of them for the documents.

A field is camelCase on the wire and snake_case in Python. Validation is strict: `"1"` is not 1, an unknown field is a fault, and
`null` is accepted only where the document allows it. JSON that cannot be stored is refused before (parsing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema
from pydantic_core.core_schema import ModelField, ModelSchema, WithDefaultSchema
from quart import current_app

from domain.devices.channels import MAX_CHANNEL
from domain.kernel.checks import FORBIDDEN_IN_LINE, single_line_fault
from domain.kernel.clock import Clock, from_iso, to_iso
from domain.kernel.errors import ValidationFailed


def _validate_single_line(text: str) -> str:
    fault = single_line_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


OneLine = AfterValidator(_validate_single_line)
"""For text that is shown in lists and logs: a single line without control or bidirectional characters."""
SINGLE_LINE_SCHEMA: JsonDict = {"pattern": f"^[^{FORBIDDEN_IN_LINE}]*$"}
VISIBLE_LINE_SCHEMA: JsonDict = {"pattern": f"^[^{FORBIDDEN_IN_LINE}]*[^\\s{FORBIDDEN_IN_LINE}][^{FORBIDDEN_IN_LINE}]*$"}
"""The same rules for the OpenAPI document; the second also requires a visible character."""

DisplayName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra={**VISIBLE_LINE_SCHEMA, "examples": ["Greenhouse"]}),
]
"""A name given by a user: 1 to 64 characters; surrounding spaces are removed."""

ShortText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra=VISIBLE_LINE_SCHEMA),
]
"""The same for what is no name: a kind, a tag, a label."""
MAX_METRIC_LENGTH = 64
MetricName = Annotated[str, Field(min_length=1, max_length=MAX_METRIC_LENGTH)]

Remark = Annotated[
    str,
    StringConstraints(min_length=1, max_length=280, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra=VISIBLE_LINE_SCHEMA),
]
"""A line that a person or a program adds to a request or a decision."""

TimestampText = Annotated[
    str, Field(json_schema_extra={"format": "date-time", "examples": ["2026-11-21T04:00:00.000Z"]}, max_length=40)
]
"""ISO 8601 with an offset in a request. `parse_timestamp` of parsing.py converts it."""
Timestamp = Annotated[TimestampText, BeforeValidator(lambda at: to_iso(at) if isinstance(at, int) else at)]
"""ISO 8601 in a response, made from Unix milliseconds."""

_LATEST_MS = 2**52


def _parse_instant(value: Any) -> Any:
    if not isinstance(value, str) or (value.isascii() and value.isdigit()):
        return value
    try:
        return from_iso(value)
    except ValueError:
        raise ValueError(
            "must be Unix milliseconds, or ISO 8601 with an offset such as 2026-11-21T04:00:00Z (write + as %2B in a URL)"
        ) from None


InstantMs = Annotated[
    int,
    Field(ge=0, le=_LATEST_MS),
    BeforeValidator(_parse_instant),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _LATEST_MS},
                {"type": "string", "format": "date-time", "maxLength": 40},
            ]
        }
    ),
]
"""An instant in a query: Unix milliseconds, or ISO 8601 as dashboards such as Grafana write it."""

Id = TypeVar("Id", bound=str)
IdText = Annotated[Id, Field(min_length=1, max_length=64)]
"""An id in a request, such as `IdText[DeviceId]`. Whether there is such a thing is the domain's question."""

E = TypeVar("E", bound=Enum)
EnumValue = Annotated[E, Field(strict=False)]
"""An enumeration in a request body, given by its value. A strict model would accept only the Python member."""

Made = TypeVar("Made")


class RequestModel(BaseModel):
    """What a client sends, with the camelCase names only. Unknown names are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True, defer_build=True
    )

    def to_domain(self, kind: Callable[..., Made], **given: object) -> Made:
        """An object of a data class: a field is what `given` says, else this model's field of the same name, else its default."""
        names = {field.name for field in fields(kind)} & type(self).model_fields.keys() - given.keys()  # type: ignore[arg-type]
        return kind(**{name: getattr(self, name) for name in names}, **given)


class QueryParametersModel(RequestModel):
    """Query parameters: text on the wire, so numbers and booleans are parsed from text."""


class RequestBodyModel(RequestModel):
    """A request body. Nothing is converted: `"1"` is no number."""

    model_config = ConfigDict(strict=True)


ChannelNumber = Annotated[int, Field(ge=1, le=MAX_CHANNEL, description="A channel of the device; 1 is the relay.")]
ChannelNumbers = Annotated[list[ChannelNumber], Field(max_length=MAX_CHANNEL, description="Channels; empty: all of the device.")]


class EmptyBody(RequestBodyModel):
    """The body of an endpoint that takes none: empty, or `{}`."""


class PatchBody(RequestBodyModel):
    """A partial update: omitted fields keep their value. `null` clears a field, and only the fields in `nullable` accept it."""

    nullable: ClassVar[frozenset[str]] = frozenset()

    def to_changes(self) -> dict[str, Any]:
        """The fields that were sent."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def reject_nulls(cls, content: Mapping[str, Any]) -> None:
        """Raises ValidationFailed that names the field."""
        for name, field in cls.model_fields.items():
            alias = field.alias or name
            if name not in cls.nullable and alias in content and content[alias] is None:
                raise ValidationFailed.for_field(alias, "cannot be null. Omit it to keep the present value.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, field in cls.model_fields.items():
            if name not in cls.nullable:
                alias = field.alias or name
                schema["properties"][alias] = without_null(schema["properties"][alias])
        return schema


def _names_of(field: str) -> AliasChoices:
    """What a response field is read from: its own name, the milliseconds of an instant (`created_at`: `created_ms`, `last_seen`:
    `last_seen_ms`), or its name on the wire."""
    return AliasChoices(field, f"{field.removesuffix('_at')}_ms", to_camel(field))


class ResponseModel(BaseModel):
    """A response: constructed with the snake_case names or from domain objects, serialised with the camelCase names. Every field
    is always present, unless it has an `exclude_if`."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=_names_of, serialization_alias=to_camel),
        from_attributes=True,
        extra="forbid",
        frozen=True,
        json_schema_serialization_defaults_required=True,
        defer_build=True,
    )

    @classmethod
    def of(cls, *sources: object, **given: object) -> Self:
        """A field is what `given` says, else the attribute of its name in the first of the `sources` that has it. So are the
        fields of nested models."""
        values = dict(given)
        for name, in_ms in _attributes_of(cls):
            if name in given:
                continue
            for source in sources:
                found = getattr(source, name, _MISSING)
                if found is _MISSING:
                    found = getattr(source, in_ms, _MISSING)
                if found is not _MISSING:
                    values[name] = found
                    break
        return cls.model_validate(values)


CLOCK = "latchboard.clock"
"""Extension of the application: the `Clock` by which objects have ended."""


EndedAt = Annotated[Timestamp | None, Field(description="When it ended; null while it lasts.")]


class EndingResponse(ResponseModel):
    """An object that ends: by itself at the `expires_ms` of what it is made from, or otherwise, which a given `ended_at` says."""

    @classmethod
    def of(cls, *sources: object, **given: object) -> Self:
        if "ended_at" not in given:
            expires_ms = next((one.expires_ms for one in sources if hasattr(one, "expires_ms")), None)
            clock: Clock = current_app.extensions[CLOCK]
            given["ended_at"] = expires_ms if expires_ms is not None and expires_ms <= clock.now_ms() else None
        return super().of(*sources, **given)


_MISSING = object()


@cache
def _attributes_of(model: type[ResponseModel]) -> tuple[tuple[str, str], ...]:
    """The name of each field, and of the milliseconds that it may be made from."""
    return tuple((name, f"{name.removesuffix('_at')}_ms") for name in model.model_fields)


class OkResponse(ResponseModel):
    """`{"ok": true}`"""

    ok: bool = True


def is_none(value: object) -> bool:
    return value is None


class ErrorResponse(ResponseModel):
    """The body of every error response."""

    class Detail(ResponseModel):
        field: str
        message: str

    error: str = Field(description="A stable code, such as `VALIDATION_ERROR`.", examples=["VALIDATION_ERROR"])
    message: str = Field(description="What is wrong and what to do about it.")
    details: list[Detail] | None = Field(default=None, exclude_if=is_none, description="The fields at fault, if any.")
    retry_after: int | None = Field(default=None, exclude_if=is_none, description="Seconds to wait; present with status 429.")
    request_id: str = Field(
        description="Identifies the request in the log; also in the `X-Request-Id` header. Quote it when you ask for help."
    )


REF_TEMPLATE = "#/components/schemas/{model}"


class ApiDocumentSchemaGenerator(GenerateJsonSchema):
    """Of the OpenAPI and AsyncAPI documents, in the form that generators of client libraries read well: they make a field with a
    default required or nullable, and name types after titles. So a field that may be omitted has no `"default": null`, a field
    of a response that is omitted instead of null is not nullable, and fields have no titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: WithDefaultSchema) -> dict[str, Any]:
        made = super().default_schema(schema)
        return {key: value for key, value in made.items() if (key, value) != ("default", None)}

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        if self.mode == "serialization" and made.get("additionalProperties") is False:  # clients ignore what they do not know
            del made["additionalProperties"]
        return made

    def model_field_schema(self, schema: ModelField) -> dict[str, Any]:
        made = super().model_field_schema(schema)
        is_omitted = self.mode == "serialization" and schema.get("serialization_exclude_if") is not None
        return without_null(made) if is_omitted else made


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field that may be omitted but is never null."""
    alternatives = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and not (key == "default" and value is None)}
    if len(alternatives) == 1:
        return {**alternatives[0], **rest}
    return {**rest, "anyOf": alternatives} if alternatives else rest
