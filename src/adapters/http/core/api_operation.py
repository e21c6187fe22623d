"""What one operation of the API declares: method, path, access, parameters, responses and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel

from adapters.http.core.caller_authentication import AllowedCallers

_PATH_PARAMETER = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")


def openapi_path(path: str) -> str:
    """A path of Quart as the document writes it."""
    return _PATH_PARAMETER.sub(lambda part: f"{{{to_camel(part[1])}}}", path)


@dataclass(frozen=True, slots=True)
class NonJsonResponse:
    """A success response that is not JSON: the handler returns a Quart `Response`."""

    content_type: str
    description: str = "The content."
    alternatives: tuple[str, ...] = ()
    """Other content types of the response."""


class ResponseSerializers(dict[int, TypeAdapter[Any]]):
    """What serialises the JSON of each success status. Each is built at its first use: to build all takes a fifth of a start."""

    def __init__(self, types: Mapping[int, Any]) -> None:
        super().__init__()
        self.types = {status: kind for status, kind in types.items() if not isinstance(kind, NonJsonResponse)}

    def __missing__(self, status: int) -> TypeAdapter[Any]:
        self[status] = adapter = TypeAdapter(self.types[status])
        return adapter


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """`returns` maps each success status to its type; `errors` each status to the codes it may carry, space-separated."""

    method: str
    path: str
    handler_name: str
    tag: str
    affects: str | None
    access: AllowedCallers
    summary: str
    description: str
    returns: Mapping[int, Any]
    errors: Mapping[int, str]
    idempotent: bool
    request_headers: Mapping[str, str]
    rate_limited: bool
    audited: bool
    paged: bool
    body: type[BaseModel] | None
    body_parameter: str | None
    query: type[BaseModel] | None
    query_parameter: str | None
    path_parameters: Mapping[str, type]
    type_adapters: ResponseSerializers

    @property
    def act(self) -> str:
        """What the log calls it."""
        return f"{self.summary} ({self.method} {openapi_path(self.path)})"

    @property
    def body_required(self) -> bool:
        return self.body is not None and any(one.is_required() for one in self.body.model_fields.values())
