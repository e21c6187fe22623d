"""The shapes that cross the wire. A field is camelCase outside, snake_case inside, and checked at the border only.

Strict: `"1"` is not 1, an unknown field is a fault and not noise, and a number that a double cannot hold is refused before
any model sees it. What comes in passes `parse_object` first, because a JSON parser answers other questions than we ask:
depth, NUL, lone surrogates and names given twice are legal JSON, and each of them breaks a database or a reader further in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from domain.kernel.errors import FieldFault, Invalid
from domain.kernel.text import NOT_IN_LINES, line_fault

MAX_DEPTH = 32
MAX_NUMBER_TEXT = 400
"""A double needs at most 309 digits before the point; longer integers cost quadratic time to read and are never meant."""



def _line(text: str) -> str:
    fault = line_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


OneLine = AfterValidator(_line)
"""For texts that stand in lists and logs: one line that looks like what it is."""
LINE: JsonDict = {"pattern": f"^[^{NOT_IN_LINES}]*$"}
SEEN: JsonDict = {"pattern": f"^[^{NOT_IN_LINES}]*[^\\s{NOT_IN_LINES}][^{NOT_IN_LINES}]*$"}
"""For the document; the second also has something to see."""

Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra={**SEEN, "examples": ["Greenhouse"]}),
]
"""What people call a thing: 1 to 64 characters, outer spaces taken off."""

Timestamp = Annotated[
    str, Field(json_schema_extra={"format": "date-time", "examples": ["2026-11-21T04:00:00.000Z"]}, max_length=40)
]
"""ISO 8601 with an offset. In requests turn it with `instant`."""


class Body(BaseModel):
    """A request body. Only the camelCase names are accepted."""

    model_config = ConfigDict(
        alias_generator=to_camel, strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class NoBody(Body):
    """For endpoints without a body: nothing, or `{}`."""


class Query(BaseModel):
    """Query parameters: text on the wire, so numbers and booleans are read from text; unknown names are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class Reply(BaseModel):
    """A response. Made with the snake_case names, written with the camelCase ones."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True)


class Done(Reply):
    """`{"ok": true}`"""

    ok: bool = True


class Problem(Reply):
    """The one shape of every error."""

    class Detail(Reply):
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
    parse_object(raw)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _invalid(error, "body") from None


def read_query(model: type[BodyT], given: Mapping[str, Sequence[str]]) -> BodyT:
    """Query parameters as `model`; a name given twice counts as a fault unless the field is a list."""
    lists = {field.alias or name for name, field in model.model_fields.items() if "list" in str(field.annotation)}
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if any("\x00" in text for text in texts):
            raise Invalid.field(name, "must not contain the character NUL.")
        if len(texts) > 1 and name not in lists:
            raise Invalid.field(name, "is given more than once; give it once.")
        values[name] = list(texts) if name in lists else texts[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, "query") from None


def instant(field: str, text: str) -> int:
    """Unix milliseconds of an ISO 8601 text. Raises Invalid that names `field`."""
    from domain.kernel.clock import from_iso

    try:
        at_ms = from_iso(text)
    except (ValueError, OverflowError):
        raise Invalid.field(field, "must be an ISO 8601 date-time with offset, such as 2026-11-21T04:00:00Z.") from None
    return at_ms


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`, free of all that JSON allows and we do not."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid("The body is not UTF-8. Send JSON in UTF-8.", code="INVALID_JSON") from None
    _check_depth(raw)
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_double,
            parse_int=_integer,
            object_pairs_hook=_unique,
        )
    except json.JSONDecodeError as error:
        raise Invalid(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", code="INVALID_JSON"
        ) from None
    if not isinstance(value, dict):
        raise Invalid("The body must be a JSON object, such as {}.", code="INVALID_JSON")
    if "\\u" in text:  # the only way by which NUL and lone surrogates get into a JSON text that is UTF-8
        for path, string in _strings(value, ""):
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
            raise Invalid(f"The body is nested deeper than {MAX_DEPTH} levels. Send it flatter.", code="INVALID_JSON")


def _refuse_constant(name: str) -> NoReturn:
    raise Invalid(f"The body contains {name}, which is not a JSON number.", code="INVALID_JSON")


def _double(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise Invalid(f"The number {text[:24]} is out of the range of IEEE double.", code="INVALID_JSON")
    return value


def _integer(text: str) -> int:
    if len(text) > 15:
        if len(text) > MAX_NUMBER_TEXT:
            raise Invalid("A number in the body is out of the range of IEEE double.", code="INVALID_JSON")
        _double(text)
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"The name {twice[:64]!r} stands twice in one object. Give it once.", code="INVALID_JSON")
    return made


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield path or "body", name
            yield from _strings(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings(inner, f"{path}.{index}")


def _check_text(path: str, text: str) -> None:
    shown = path.encode("ascii", "backslashreplace").decode()
    if "\x00" in text:
        raise Invalid.field(shown, "must not contain the character NUL (\\u0000).")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid.field(shown, "contains half of a surrogate pair, which is not text.") from None


_MESSAGES = {
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


_SHOULD = re.compile(r"^(?:Input|Value|String|List|Dictionary|Data|Number) should (?:be )?(have|match|be)?")


def _in_our_words(message: str) -> str:
    """Pydantic speaks of inputs; whoever reads this sent a field."""
    message = message.removeprefix("Value error, ").rstrip(".")
    return _SHOULD.sub(lambda found: f"must {found[1] or 'be '}", message) + "."


def _invalid(error: ValidationError, where: str) -> Invalid:
    faults = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:20]:
        field = ".".join(str(step) for step in item["loc"]) or where
        message = _MESSAGES.get(item["type"]) or _in_our_words(item["msg"])
        faults.append(FieldFault(field[:200], message))
    said = "; ".join(f"{fault.field}: {fault.message.rstrip('.')}" for fault in faults[:3])
    more = f"; and {len(faults) - 3} more in `details`" if len(faults) > 3 else ""
    return Invalid(f"{said}{more}.", details=faults)
