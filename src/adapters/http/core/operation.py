"""The `operation` decorator: one declaration validates the request, selects the status and documents the endpoint.

    @bp.operation("POST /projects", AllowedCallers.SESSION, "Create a project", status=201, errors={409: "CONFLICT"})
    async def create_project(body: ProjectRequest) -> ProjectResponse: ...

A parameter of a `RequestBodyModel` type is the body, of a `QueryParametersModel` type the query; all others are parts of the
path: an id, `str` or `int`. A handler that returns nothing answers `{"ok": true}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, TypedDict, TypeVar, Unpack, get_args, get_origin, get_type_hints

from quart import Blueprint, Response

from adapters.http.core.api_operation import ApiOperation, ResponseSerializers
from adapters.http.core.caller_authentication import AllowedCallers
from adapters.http.core.operation_handling import HttpHandlerResult, handle_request
from adapters.http.core.schemas import EmptyBody, OkResponse, QueryParametersModel, RequestBodyModel

METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


class ApiOperationOptions(TypedDict, total=False):
    """`status` is 200 by default. `description`: by default the handler's docstring. `returns` is needed only for several success
    statuses (the class of the returned value selects one) or for a `NonJsonResponse`. `headers` documents request headers that
    the handler reads itself. `paged`: a full page has a `Link` header. `limited`: the response may report a grant's rate limit.
    `on_record`: invalid calls are all audited, as denied ones. `affects`: by default that of the blueprint."""

    affects: str
    description: str
    status: int
    returns: Mapping[int, Any]
    errors: Mapping[int, str]
    headers: Mapping[str, str]
    idempotent: bool
    limited: bool
    on_record: bool
    paged: bool


class ApiBlueprint(Blueprint):
    """The OpenAPI document lists its operations under `tag`; without a tag they are not for clients of the API and stay out.
    `affects`: the tag of the operations whose permission a service session needs, where it is not `tag`."""

    def __init__(self, name: str, tag: str | None, url_prefix: str = "/api/v1", *, affects: str | None = None) -> None:
        super().__init__(name, __name__, url_prefix=url_prefix)
        self.tag = tag
        self.affects = affects

    def operation(
        self, route: str, access: AllowedCallers, summary: str, **options: Unpack[ApiOperationOptions]
    ) -> Callable[[Handler], Handler]:
        """Route a method and path, in Quart's syntax (`GET /devices/<device_id>`), to the decorated handler."""
        method, _, path = route.partition(" ")

        def decorate(handler: Handler) -> Handler:
            spec = _build_operation(handler, self, method, path, access, summary, options)

            async def answer(**arguments: Any) -> Any:
                result = await handler(**arguments)
                return OkResponse() if result is None else result

            @wraps(handler)
            async def view(**parts: str) -> Response:
                return await handle_request(spec, answer, parts)

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
    parts = {name: hint for name, hint in hints.items() if name not in (body[0], query[0])}
    named_in_path = {piece[1:-1].split(":")[-1] for piece in path.split("/") if piece.startswith("<")}
    if options.get("idempotent") and access is AllowedCallers.ANYONE:
        raise TypeError(f"{handler.__name__}: an idempotent operation needs a caller; set access to SESSION or KEY")
    if set(parts) != named_in_path:
        raise TypeError(f"{handler.__name__}: its parameters {sorted(parts)} do not match the path {path}")
    return ApiOperation(
        method=method,
        path=path,
        handler_name=handler.__name__,
        tag=bp.tag or "",
        affects=options.get("affects", bp.affects),
        access=access,
        summary=summary,
        description=options.get("description") or inspect.cleandoc(handler.__doc__ or ""),
        returns=types,
        errors=options.get("errors", {}),
        idempotent=options.get("idempotent", False),
        request_headers=options.get("headers", {}),
        rate_limited=options.get("limited", False),
        audited=options.get("on_record", False),
        paged=options.get("paged", False),
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
