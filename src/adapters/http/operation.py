"""An operation says once what it is; the same words check the request, choose the status and write the document.

Order, the same for all: caller → path and query → content type and body → idempotency → handler → reply. The caller comes
first, so that nobody learns from a validation message what only callers may know.

    @operation(bp, "POST", "/projects", tag="Projects", access=Access.SESSION, summary="Create a project", status=201,
               errors={409: "CONFLICT"}, idempotent=True)
    async def create_project(body: NewProject) -> ProjectReply: ...

A parameter whose type is a `Body` is the body, a `Query` the query; every other one is a part of the path (`str` or `int`).
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel
from quart import Blueprint, Response, abort, current_app, g, request
from werkzeug.exceptions import HTTPException

from adapters.http.auth import Access, Authenticator, admit
from adapters.http.idempotency import AnswerBook, answer_once
from adapters.http.schema import Body, NoBody, Query, read_body, read_query
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.errors import DomainError, Invalid, NotFound, Refused, Throttled
from domain.kernel.ids import looks_like_an_id
from domain.kernel.refusals import Refusals

MAX_PATH_PART = 128
SOON_S = 0.05
"""A body that takes longer than this to arrive may have been held back, up to ten seconds, by who knew what was coming."""
_PART = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")
FOUNDATION = "latchboard.http"
WITH_BODY = ("POST", "PUT", "PATCH")
Value = TypeVar("Value")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """A reply with headers, or with another status than the operation's first one."""

    value: Value
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Media:
    """A success that is not JSON: the handler gives a whole Quart `Response`."""

    content_type: str
    description: str = "The content."
    also: tuple[str, ...] = ()
    """Other content types it may come in."""


@dataclass(frozen=True, slots=True)
class Foundation:
    """What every operation stands on; kept in the app's extensions."""

    authenticator: Authenticator
    answers: AnswerBook | None
    refusals: Refusals | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """`returns` maps each success status to its type; `errors` each status to the codes it may carry, space-separated."""

    method: str
    path: str
    name: str
    tag: str
    access: Access
    summary: str
    description: str
    returns: Mapping[int, Any]
    errors: Mapping[int, str]
    idempotent: bool
    headers: Mapping[str, str]
    limited: bool
    on_record: bool
    body: type[BaseModel] | None
    body_name: str | None
    query: type[BaseModel] | None
    query_name: str | None
    parts: Mapping[str, type]
    adapters: Mapping[int, TypeAdapter[Any]]

    @property
    def shown(self) -> str:
        """The path as the document has it, below `/api/v1`."""
        return _PART.sub(lambda part: f"{{{to_camel(part[1])}}}", self.path)

    @property
    def body_required(self) -> bool:
        return self.body is not None and any(one.is_required() for one in self.body.model_fields.values())


def operation(
    bp: Blueprint,
    method: str,
    path: str,
    *,
    tag: str,
    access: Access,
    summary: str,
    description: str = "",
    status: int = 200,
    returns: Mapping[int, Any] | None = None,
    errors: Mapping[int, str] | None = None,
    idempotent: bool = False,
    headers: Mapping[str, str] | None = None,
    limited: bool = False,
    on_record: bool = False,
) -> Callable[[Handler], Handler]:
    """Route `method path` of `bp` to the decorated handler.

    `path` is Quart's (`/devices/<device_id>`); `returns` is needed only for several successes (`{200: Sent, 202: Waits}`:
    the class of what is returned decides) or for `Media`; `headers` names request headers the handler reads
    itself; `limited`: a grant's rate limit may be reported with the answer; `on_record`: a call that was sent wrongly is put on
    the record as a refused one is.
    """

    def decorate(handler: Handler) -> Handler:
        spec = _describe(
            handler, method, path, tag, access, summary, description, returns or {status: None}, errors or {}, idempotent,
            headers or {}, limited, on_record,
        )  # fmt: skip

        @wraps(handler)
        async def view(**parts: str) -> Response:
            return await _serve(spec, handler, parts)

        view.operation = spec  # type: ignore[attr-defined]
        bp.add_url_rule(path, handler.__name__, view, methods=[method], strict_slashes=True)
        return handler

    return decorate


def _describe(
    handler: Callable[..., Any],
    method: str,
    path: str,
    tag: str,
    access: Access,
    summary: str,
    description: str,
    returns: Mapping[int, Any],
    errors: Mapping[int, str],
    idempotent: bool,
    headers: Mapping[str, str],
    limited: bool,
    on_record: bool,
) -> Operation:
    hints = get_type_hints(handler, include_extras=True)
    result = hints.pop("return", None)
    if get_origin(result) is Outcome:
        result = get_args(result)[0]
    types = {code: result if kind is None else kind for code, kind in returns.items()}
    body, query = _first(hints, Body), _first(hints, Query)
    parts = {name: hint for name, hint in hints.items() if name not in (body[0], query[0])}
    named_in_path = {piece[1:-1].split(":")[-1] for piece in path.split("/") if piece.startswith("<")}
    if set(parts) != named_in_path:
        raise TypeError(f"{handler.__name__}: parameters {sorted(parts)} are not those of the path {path}")
    return Operation(
        method=method,
        path=path,
        name=handler.__name__,
        tag=tag,
        access=access,
        summary=summary,
        description=description or inspect.cleandoc(handler.__doc__ or ""),
        returns=types,
        errors=errors,
        idempotent=idempotent,
        headers=headers,
        limited=limited,
        on_record=on_record,
        body=(body[1] or NoBody) if method in WITH_BODY else None,
        body_name=body[0],
        query=query[1],
        query_name=query[0],
        parts=parts,
        adapters={code: TypeAdapter(kind) for code, kind in types.items() if not isinstance(kind, Media)},
    )


def _first(hints: Mapping[str, Any], kind: type) -> tuple[str, type] | tuple[None, None]:
    """The first parameter of this kind: its name and its type."""
    for name, hint in hints.items():
        if isinstance(hint, type) and issubclass(hint, kind):
            return name, hint
    return None, None


async def _serve(spec: Operation, handler: Callable[..., Awaitable[Any]], parts: Mapping[str, str]) -> Response:
    foundation: Foundation = current_app.extensions[FOUNDATION]
    try:
        return await _answered(foundation, spec, handler, parts)
    except (Refused, Throttled, Invalid, HTTPException) as error:
        if spec.on_record or isinstance(error, Refused | Throttled):
            await _put_on_record(foundation, spec, parts, error)
        raise


async def _put_on_record(
    foundation: Foundation, spec: Operation, parts: Mapping[str, str], error: DomainError | HTTPException
) -> None:
    caller = g.get("caller") or g.get("turned_away")
    if foundation.refusals is None or not isinstance(caller, Session | ApiKeyCaller):
        return
    if isinstance(error, HTTPException):
        error = Invalid(error.name, code=error.name.upper().replace(" ", "_"))
    subject = {to_camel(name): part for name, part in parts.items() if looks_like_an_id(str(part))}
    await foundation.refusals.turned_away(caller, f"{spec.summary} ({spec.method} {spec.shown})", error, subject)


async def _answered(
    foundation: Foundation, spec: Operation, handler: Callable[..., Awaitable[Any]], parts: Mapping[str, str]
) -> Response:
    await admit(spec.access, foundation.authenticator)
    arguments: dict[str, Any] = {name: _path_part(name, kind, str(parts[name])) for name, kind in spec.parts.items()}
    given = request.args.to_dict(flat=False)
    if spec.query is not None and spec.query_name is not None:
        arguments[spec.query_name] = read_query(spec.query, given)
    elif given:
        name = next(iter(given))
        raise Invalid.field(name[:64], "is not a known query parameter here; this endpoint takes none.")
    raw = b""
    if spec.body is not None:
        began = time.perf_counter()
        raw = await _raw_body(spec)
        if time.perf_counter() - began > SOON_S:  # who was let in before a slow body came may have been shut out meanwhile
            await admit(spec.access, foundation.authenticator)
        body = read_body(spec.body, raw or b"{}")
        if spec.body_name is not None:
            arguments[spec.body_name] = body

    async def answer() -> Response:
        return _respond(spec, await handler(**arguments))

    if spec.idempotent and foundation.answers is not None and "Idempotency-Key" in request.headers:
        return await answer_once(foundation.answers, g.get("caller"), raw, answer)
    return await answer()


async def _raw_body(spec: Operation) -> bytes:
    raw = await request.get_data(cache=False, as_text=False, parse_form_data=False)
    if raw or (request.content_type and spec.body_required):
        charset = request.mimetype_params.get("charset", "utf-8").lower()
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if request.mimetype != "application/json" or charset not in ("utf-8", "utf8") or encoding != "identity":
            abort(415)
    if not raw and spec.body_required:
        raise Invalid("This needs a JSON body. /openapi.json shows its fields.", code="INVALID_JSON")
    return raw


def _path_part(name: str, kind: type, text: str) -> Any:
    if len(text) > MAX_PATH_PART or not text.isprintable():
        raise NotFound("There is nothing at this address. Check the id.")
    if kind is not int:
        return text
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise Invalid.field(to_camel(name), "must be a whole number.")
    return int(text)


def _respond(spec: Operation, result: Any) -> Response:
    outcome = result if isinstance(result, Outcome) else Outcome(result)
    if isinstance(outcome.value, Response):
        return outcome.value
    status: int = outcome.status or _status(spec, outcome.value)
    content = spec.adapters[status].dump_json(outcome.value, by_alias=True)
    response = Response(content, status=status, content_type="application/json")
    response.headers.update(dict(outcome.headers))
    return response


def _status(spec: Operation, value: Any) -> int:
    if len(spec.returns) == 1:
        (only,) = spec.returns
        return only
    for status, kind in spec.returns.items():
        if isinstance(kind, type) and isinstance(value, kind):
            return status
    raise TypeError(f"{spec.name} returned {type(value).__name__}, which is none of its successes")
