"""The `operation` decorator: one declaration validates the request, selects the status and documents the endpoint.

    @bp.operation("POST /projects", AllowedCallers.SESSION, "Create a project", status=201, errors={409: "CONFLICT"})
    async def create_project(body: ProjectRequest) -> ProjectResponse: ...

A parameter of a `RequestBodyModel` type is the body, of a `QueryParametersModel` type the query; all others are parts of the
path: an id, `str` or `int`. A handler that returns nothing answers `{"ok": true}`.

Every request passes the same steps: caller → path and query → content type and body → idempotency → handler → response. The
caller comes first, so that validation messages reveal nothing to strangers.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from http import HTTPStatus
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel
from quart import Blueprint, Request, Response, abort, current_app, g
from quart.globals import request_ctx
from quart.wrappers.response import DataBody
from werkzeug.exceptions import HTTPException

from adapters.http.core.callers import AllowedCallers, AuthenticatorPort, authenticate, authentication_errors, current_caller
from adapters.http.core.conditional import Precondition, etag_of, find_above, lists_etag
from adapters.http.core.idempotency import IDEMPOTENCY_ERRORS, SHUTDOWN_TIMEOUT_S, IdempotencyStore, consume_exception
from adapters.http.core.parsing import parse_json_object, read_body, read_query
from adapters.http.core.quart_app import header_value
from adapters.http.core.schemas import EmptyBody, OkResponse, QueryParametersModel, RequestBodyModel, ResponseModel
from adapters.http.core.turns import TURN_ERRORS, AccountTurns, TurnKind
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.domain_event import EventKind
from domain.kernel.errors import DomainError, NotFound, PermissionDenied, RateLimited, Unauthenticated, ValidationFailed
from domain.kernel.ids import has_any_id_format
from domain.kernel.life import DatabaseLife
from domain.kernel.ports import DeniedRequestLog
from domain.team.service_sessions import check_operation

API_DEPENDENCIES = "latchboard.http"
METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
BODY_ERRORS = {400: "INVALID_JSON", 408: "REQUEST_TIMEOUT", 413: "PAYLOAD_TOO_LARGE", 415: "UNSUPPORTED_MEDIA_TYPE"}
COMMIT_ERRORS = {403: "ROLE_REQUIRED", 409: "CONFLICT"}
"""Of whatever changes something: the caller's role is read again at the commit, and another change may have come first."""
MAX_PATH_PARAMETER_LENGTH = 128
_EMPTY_BODIES = (b"", b"{}", b"null")
SLOW_BODY_S = 0.05
"""If a body takes longer than this to arrive, the caller is authenticated again: a revoked caller could have delayed it."""
_PATH_PARAMETER = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")

Value = TypeVar("Value")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class HttpHandlerResult(Generic[Value]):
    """A response with headers, or with a status other than the operation's first one."""

    value: Value
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Sequence[str] = ()
    """Values of `Set-Cookie`."""


@dataclass(frozen=True, slots=True)
class NonJsonResponse:
    """A success response that is not JSON: the handler returns a Quart `Response`."""

    content_type: str
    description: str = "The content."
    alternatives: tuple[str, ...] = ()
    """Other content types of the response."""


@dataclass(frozen=True, slots=True)
class AuthorityMade:
    """Of an operation that makes something which acts without its maker's session: a person proves anew that it is they
    (403 `STEP_UP_REQUIRED`), `event` is written and told on the maker's older channels, and `end` takes it back. `when`: the
    only case in which the operation does so; empty for always."""

    event: EventKind
    end: str
    when: str = ""


class ApiOperationOptions(TypedDict, total=False):
    """`status` is 200 by default. `description`: by default the handler's docstring. `returns` is needed only for several success
    statuses (the class of the returned value selects one) or for a `NonJsonResponse`. `headers` documents request headers that
    the handler reads itself.
    `on_record`: invalid calls are all audited, as denied ones.
    `changes`: the path of the object whose `ETag` an `If-Match` is about, where it is not above this path; the body has the parts
    of that path which this one lacks.
    `affects`: the tag of the operations whose permission a service session needs, where it is not the blueprint's.
    `authority`: what it makes that lasts. `before_factor`: open to a session that must set up a second factor first.
    `turn`: it may keep the service busy for long, so that it takes a turn (`turns.py`)."""

    affects: str
    authority: AuthorityMade
    before_factor: bool
    changes: str
    description: str
    status: int
    returns: Mapping[int, Any]
    errors: Mapping[int, str]
    headers: Mapping[str, str]
    idempotent: bool
    on_record: bool
    turn: TurnKind


class ApiBlueprint(Blueprint):
    """The OpenAPI document lists its operations under `tag`; without a tag they are not for clients of the API and stay out."""

    def __init__(self, name: str, tag: str | None, url_prefix: str = "/api/v1") -> None:
        super().__init__(name, __name__, url_prefix=url_prefix)
        self.tag = tag

    def operation(
        self, route: str, access: AllowedCallers, summary: str, **options: Unpack[ApiOperationOptions]
    ) -> Callable[[Handler], Handler]:
        """Route a method and path, in Quart's syntax (`GET /devices/<device_id>`), to the decorated handler."""
        method, _, path = route.partition(" ")

        def decorate(handler: Handler) -> Handler:
            spec = _build_operation(handler, self, method, path, access, summary, options)

            @wraps(handler)
            async def view(**parts: str) -> Response:
                return await handle_request(spec, handler, parts)

            if self.tag is not None:
                view.operation = spec  # type: ignore[attr-defined]
            self.add_url_rule(path, handler.__name__, view, methods=[method], strict_slashes=True)
            return handler

        return decorate


def _build_operation(
    handler: Callable[..., Any],
    bp: ApiBlueprint,
    method: str,
    path: str,
    access: AllowedCallers,
    summary: str,
    options: ApiOperationOptions,
) -> ApiOperation:
    hints = get_type_hints(handler, include_extras=True)
    result = hints.pop("return", None)
    if get_origin(result) is HttpHandlerResult:
        result = get_args(result)[0]
    elif result is type(None):
        result = OkResponse
    returns = options.get("returns") or {options.get("status", 200): None}
    types = {code: result if kind is None else kind for code, kind in returns.items()}
    body, query = _find_parameter(hints, RequestBodyModel), _find_parameter(hints, QueryParametersModel)
    is_paged = "cursor" in getattr(query[1], "model_fields", ())  # `PageQueryParameters` of paging.py, which needs this file
    parts = {name: hint for name, hint in hints.items() if name not in (body[0], query[0])}
    if options.get("idempotent") and access is AllowedCallers.ANYONE:
        raise TypeError(f"{handler.__name__}: an idempotent operation needs a caller; set access to SESSION or KEY")
    if set(parts) != set(_PATH_PARAMETER.findall(path)):
        raise TypeError(f"{handler.__name__}: its parameters {sorted(parts)} do not match the path {path}")
    return ApiOperation(
        method=method,
        path=path,
        handler=handler,
        handler_name=handler.__name__,
        tag=bp.tag or "",
        affects=options.get("affects"),
        authority=options.get("authority"),
        before_factor=options.get("before_factor", False),
        changes=options.get("changes"),
        access=access,
        summary=summary,
        description=options.get("description") or inspect.cleandoc(handler.__doc__ or ""),
        returns=types,
        errors=({410: "OTHER_LIFE"} if is_paged else {}) | dict(options.get("errors", {})),
        idempotent=options.get("idempotent", False),
        request_headers=options.get("headers", {}),
        audited=options.get("on_record", False),
        paged=is_paged,
        turn=options.get("turn"),
        body=(body[1] or EmptyBody) if method in METHODS_WITH_BODY else None,
        body_parameter=body[0],
        query=query[1],
        query_parameter=query[0],
        path_parameters=parts,
        type_adapters=ResponseSerializers(types),
    )


def _find_parameter(hints: Mapping[str, Any], kind: type) -> tuple[str, type] | tuple[None, None]:
    """Name and type of the first parameter of this kind."""
    for name, hint in hints.items():
        if isinstance(hint, type) and issubclass(hint, kind):
            return name, hint
    return None, None


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
    handler: Callable[..., Any]
    handler_name: str
    tag: str
    affects: str | None
    authority: AuthorityMade | None
    before_factor: bool
    changes: str | None
    access: AllowedCallers
    summary: str
    description: str
    returns: Mapping[int, Any]
    errors: Mapping[int, str]
    idempotent: bool
    request_headers: Mapping[str, str]
    audited: bool
    paged: bool
    turn: TurnKind | None
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
    def codes(self) -> dict[int, list[str]]:
        """The error codes by status: those of the steps that every request passes, then those that the operation declares."""
        steps: list[Mapping[int, str]] = [
            {400: "VALIDATION_ERROR", 500: "INTERNAL_ERROR", 503: "UNAVAILABLE SECRET_UNREADABLE"},
            authentication_errors(self.access, before_factor=self.before_factor),
            COMMIT_ERRORS if self.method != "GET" and self.access is not AllowedCallers.ANYONE else {},
            {412: "PRECONDITION_FAILED"} if self.method != "GET" and self.access is not AllowedCallers.ANYONE else {},
            {403: "STEP_UP_REQUIRED"} if self.authority is not None else {},
            {404: "NOT_FOUND"} if self.path_parameters else {},
            BODY_ERRORS if self.body is not None else {},
            IDEMPOTENCY_ERRORS if self.idempotent else {},
            TURN_ERRORS if self.turn is not None else {},
            self.errors,
        ]
        found: dict[int, dict[str, None]] = {}
        for step in steps:
            for status, codes in step.items():
                found.setdefault(status, {}).update(dict.fromkeys(codes.split()))
        return {status: [*codes] for status, codes in sorted(found.items())}

    @property
    def shows_object(self) -> bool:
        """Whether it is the GET of one object, which has an `ETag`."""
        kind = self.returns.get(HTTPStatus.OK)
        if self.method != "GET" or not (isinstance(kind, type) and issubclass(kind, ResponseModel)):
            return False
        return "has_more" not in kind.model_fields

    @property
    def path_pattern(self) -> str:
        """The path without the names of its parts."""
        return _PATH_PARAMETER.sub("<>", self.path)

    @property
    def body_required(self) -> bool:
        return self.body is not None and any(one.is_required() for one in self.body.model_fields.values())


def openapi_path(path: str) -> str:
    """A path of Quart as the document writes it."""
    return _PATH_PARAMETER.sub(lambda part: f"{{{to_camel(part[1])}}}", path)


ObjectRead: TypeAlias = tuple[ApiOperation, Callable[..., Awaitable[Any]]]
"""The GET of one object, and its handler."""


class ObjectReads:
    """The GETs of all objects, for the ETags and conditions of the changes below them."""

    def __init__(self) -> None:
        self._by_path: dict[str, ObjectRead | None] = {}
        """None for the GET of a list."""

    def add(self, views: Iterable[Callable[..., Any]]) -> None:
        """`views`: of the application; those of operations count."""
        for view in views:
            spec = getattr(view, "operation", None)
            if isinstance(spec, ApiOperation) and spec.method == "GET":
                self._by_path[spec.path_pattern] = (spec, inspect.unwrap(view)) if spec.shows_object else None

    def shows(self, spec: ApiOperation) -> bool:
        """Whether a success shows one object as its GET does, with or without `{"ok": true}` beside its fields."""
        if spec.method == "GET":
            return spec.shows_object
        found, kind = self.find(spec), spec.returns.get(HTTPStatus.OK)
        if found is None:
            return False
        shown: type[ResponseModel] = found[0].returns[HTTPStatus.OK]
        if not (isinstance(kind, type) and issubclass(kind, shown)):
            return False
        return kind.model_fields.keys() - shown.model_fields.keys() <= {"ok"}

    def find(self, spec: ApiOperation) -> ObjectRead | None:
        """The GET of the object that this operation changes. None for one that changes no single object: a list is there, or no
        GET at all."""
        pattern = spec.path_pattern if spec.changes is None else _PATH_PARAMETER.sub("<>", spec.changes)
        return find_above(pattern, self._by_path)


@dataclass(frozen=True, slots=True)
class RequestHandlingDependencies:
    """The dependencies of all operations; stored in the app's extensions."""

    authenticator: AuthenticatorPort
    idempotency_store: IdempotencyStore | None
    denial_log: DeniedRequestLog | None = None
    life: DatabaseLife = field(default_factory=DatabaseLife)
    turns: Mapping[TurnKind, AccountTurns] = field(
        default_factory=lambda: {TurnKind.BULK: AccountTurns(), TurnKind.COMMANDS: AccountTurns(rests=False)}
    )
    objects: ObjectReads = field(default_factory=ObjectReads)
    running_tasks: set[asyncio.Task[Response]] = field(default_factory=set)
    """The requests with an `Idempotency-Key` that have a turn or wait for one: they may outlive their connections."""

    async def close(self) -> None:
        for task in self.running_tasks:
            task.cancel()
        if self.running_tasks:
            await asyncio.wait(self.running_tasks, timeout=SHUTDOWN_TIMEOUT_S)


async def handle_request(spec: ApiOperation, handler: Callable[..., Awaitable[Any]], parts: Mapping[str, str]) -> Response:
    dependencies: RequestHandlingDependencies = current_app.extensions[API_DEPENDENCIES]
    try:
        return await _handle(dependencies, spec, handler, parts)
    except (PermissionDenied, RateLimited, Unauthenticated, ValidationFailed, HTTPException) as error:
        # A caller that is known and yet unauthenticated has lost its access during the request.
        if spec.audited or isinstance(error, PermissionDenied | RateLimited | Unauthenticated):
            await _audit_denial(dependencies, spec, parts, error)
        raise


async def _audit_denial(
    dependencies: RequestHandlingDependencies, spec: ApiOperation, parts: Mapping[str, str], error: DomainError | HTTPException
) -> None:
    caller = g.get("caller") or g.get("denied_caller")
    if dependencies.denial_log is None or not isinstance(caller, SessionCaller | ApiKeyCaller):
        return
    if isinstance(error, HTTPException):
        error = ValidationFailed(error.name, code=error.name.upper().replace(" ", "_"))
    subject = {to_camel(name): part for name, part in parts.items() if has_any_id_format(str(part))}
    await dependencies.denial_log.log_denied(caller, spec.act, error, subject, always=spec.audited)


async def _authenticate(dependencies: RequestHandlingDependencies, spec: ApiOperation) -> None:
    await authenticate(spec.access, dependencies.authenticator, before_factor=spec.before_factor)
    if isinstance(g.caller, SessionCaller):
        check_operation(g.caller, spec.tag, is_read=spec.method == "GET", affects=spec.affects)


async def _handle(
    dependencies: RequestHandlingDependencies,
    spec: ApiOperation,
    handler: Callable[..., Awaitable[Any]],
    parts: Mapping[str, str],
) -> Response:
    await _authenticate(dependencies, spec)
    arguments: dict[str, Any] = {
        name: _parse_path_parameter(name, kind, str(parts[name])) for name, kind in spec.path_parameters.items()
    }
    request = request_ctx.request  # not the proxy, which looks the request up at each attribute
    given = request.args.to_dict(flat=False) if request.query_string else {}
    if spec.query is not None and spec.query_parameter is not None:
        arguments[spec.query_parameter] = read_query(spec.query, given)
    elif given:
        name = next(iter(given))
        raise ValidationFailed.for_field(name[:64], "is not a known query parameter. This endpoint takes none.")
    raw = b""
    if spec.body is not None:
        began = time.perf_counter()
        raw = await _read_raw_body(spec, request)
        if time.perf_counter() - began > SLOW_BODY_S:  # the caller may have been revoked meanwhile
            await _authenticate(dependencies, spec)
    elif spec.method != "GET":
        await _reject_body(request)
    if spec.turn is None:
        return await _run_handler(dependencies, spec, handler, arguments, raw)
    return await _run_in_turn(dependencies, spec, _run_handler(dependencies, spec, handler, arguments, raw))


async def _run_in_turn(
    dependencies: RequestHandlingDependencies, spec: ApiOperation, work: Coroutine[Any, Any, Response]
) -> Response:
    """The turn begins before the body is read into objects, and lasts until the work has ended, also when the client has gone."""

    async def run() -> Response:
        began = time.perf_counter()
        try:
            async with dependencies.turns[spec.turn or TurnKind.BULK].take(current_caller().account_id):
                if time.perf_counter() - began > SLOW_BODY_S:
                    await _authenticate(dependencies, spec)
                return await work
        finally:
            work.close()  # if its turn has not come

    if header_value(b"idempotency-key") is None:
        return await run()
    task = asyncio.create_task(run(), name="request in its turn")
    dependencies.running_tasks.add(task)
    task.add_done_callback(dependencies.running_tasks.discard)
    task.add_done_callback(consume_exception)
    return await asyncio.shield(task)


async def _run_handler(
    dependencies: RequestHandlingDependencies,
    spec: ApiOperation,
    handler: Callable[..., Awaitable[Any]],
    arguments: dict[str, Any],
    raw: bytes,
) -> Response:
    if spec.body is not None:
        body = read_body(spec.body, raw or b"{}")
        if spec.body_parameter is not None:
            arguments[spec.body_parameter] = body

    if_match = None if spec.method == "GET" else header_value(b"if-match")

    async def run(caller: SessionCaller | ApiKeyCaller | None) -> Response:
        g.caller = caller
        if if_match is not None and caller is not None and not caller.is_replay:
            condition = _precondition(dependencies, spec, arguments, if_match)
            await condition.check()
            g.caller = replace(caller, precondition=condition)
        return _with_etag(dependencies, spec, _build_response(spec, await handler(**arguments)))

    if spec.idempotent and dependencies.idempotency_store is not None and header_value(b"idempotency-key") is not None:
        content = parse_json_object(raw or b"{}")
        return await dependencies.idempotency_store.execute_once(current_caller(), content, run, spec.act)
    return await run(g.caller)


def _precondition(
    dependencies: RequestHandlingDependencies, spec: ApiOperation, arguments: Mapping[str, Any], if_match: str
) -> Precondition:
    found = dependencies.objects.find(spec)
    if found is None:
        return Precondition(if_match=if_match, show=None)
    read, show_object = found
    body = arguments.get(spec.body_parameter or "")
    parts = {name: arguments[name] if name in arguments else str(getattr(body, name)) for name in read.path_parameters}
    if read.query is not None and read.query_parameter is not None:
        parts[read.query_parameter] = read.query()

    async def show() -> bytes:
        content: bytes = await _build_response(read, await show_object(**parts)).get_data(as_text=False)
        return content

    return Precondition(if_match=if_match, show=show)


def _with_etag(dependencies: RequestHandlingDependencies, spec: ApiOperation, response: Response) -> Response:
    """With the `ETag` of the object that it shows. A GET of what the client has already, is answered with 304."""
    if response.status_code != HTTPStatus.OK or not dependencies.objects.shows(spec):
        return response
    body = cast(DataBody, response.response)
    etag = etag_of(body.data)
    seen = header_value(b"if-none-match") if spec.method == "GET" else None
    if seen is not None and lists_etag(seen, etag, weakly=True):
        response = Response(b"", status=HTTPStatus.NOT_MODIFIED)
        del response.headers["Content-Type"]
    response.headers["ETag"] = etag
    return response


async def _read_bytes(request: Request) -> bytes:
    try:
        async with asyncio.timeout(request.body_timeout):
            raw: bytes = await request.body
    except TimeoutError:
        abort(408)
    request.body.clear()
    g.has_read_body = True
    return raw


async def _reject_body(request: Request) -> None:
    """What a body of this request says would not be done: `DELETE` with an id in its body deletes what the path names."""
    is_short = (request.content_length or 0) <= len(max(_EMPTY_BODIES, key=len))
    if not is_short or (await _read_bytes(request)).strip() not in _EMPTY_BODIES:
        raise ValidationFailed.for_field(
            "body", "must be empty: this request takes no body, and the path names what it is about."
        )


async def _read_raw_body(spec: ApiOperation, request: Request) -> bytes:
    raw = await _read_bytes(request)
    if raw or (request.content_type and spec.body_required):
        charset = request.mimetype_params.get("charset", "utf-8").lower()
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if request.mimetype != "application/json" or charset not in ("utf-8", "utf8") or encoding != "identity":
            abort(415)
    if not raw and spec.body_required:
        raise ValidationFailed("A JSON body is required. /openapi.json lists its fields.", code="INVALID_JSON")
    return raw


def _parse_path_parameter(name: str, kind: type, text: str) -> Any:
    if len(text) > MAX_PATH_PARAMETER_LENGTH or not text.isprintable():
        raise NotFound("This path does not exist. Check the id.")
    if kind is not int:
        return text
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValidationFailed.for_field(to_camel(name), "must be a whole number.")
    return int(text)


def _build_response(spec: ApiOperation, result: Any) -> Response:
    if result is None:
        result = OkResponse()
    response_value = result if isinstance(result, HttpHandlerResult) else HttpHandlerResult(result)
    if isinstance(response_value.value, Response):
        return response_value.value
    status: int = response_value.status or _success_status(spec, response_value.value)
    content = spec.type_adapters[status].dump_json(response_value.value, by_alias=True)
    response = Response(content, status=status, content_type="application/json")
    if response_value.headers:
        response.headers.update(dict(response_value.headers))
    for cookie in response_value.cookies:
        response.headers.add("Set-Cookie", cookie)
    return response


def _success_status(spec: ApiOperation, value: Any) -> int:
    if len(spec.returns) == 1:
        (only,) = spec.returns
        return only
    for status, kind in spec.returns.items():
        if isinstance(kind, type) and isinstance(value, kind):
            return status
    raise TypeError(f"{spec.handler_name} returned {type(value).__name__}, which is not one of its success types")
