"""Handles a request as its `ApiOperation` declares it.

Every request passes the same steps: caller → path and query → content type and body → idempotency → handler → response. The
caller comes first, so that validation messages reveal nothing to strangers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic.alias_generators import to_camel
from quart import Request, Response, abort, current_app, g
from quart.globals import request_ctx
from werkzeug.exceptions import HTTPException

from adapters.http.core.api_operation import ApiOperation
from adapters.http.core.caller_authentication import AuthenticatorPort, authenticate, current_caller
from adapters.http.core.idempotency import IdempotencyDependencies, execute_once
from adapters.http.core.request_parsing import read_body, read_query
from adapters.http.core.trimmed_quart import header_value
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import DomainError, NotFound, PermissionDenied, RateLimited, Unauthenticated, ValidationFailed
from domain.kernel.ids import has_any_id_format
from domain.kernel.ports import DeniedRequestLog
from domain.team.service_sessions import check_operation

MAX_PATH_PARAMETER_LENGTH = 128
SLOW_BODY_S = 0.05
"""If a body takes longer than this to arrive, the caller is authenticated again: a revoked caller could have delayed it."""
API_DEPENDENCIES = "latchboard.http"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class HttpHandlerResult(Generic[Value]):
    """A response with headers, or with a status other than the operation's first one."""

    value: Value
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Sequence[str] = ()
    """Values of `Set-Cookie`."""


@dataclass(frozen=True, slots=True)
class RequestHandlingDependencies:
    """The dependencies of all operations; stored in the app's extensions."""

    authenticator: AuthenticatorPort
    idempotency_store: IdempotencyDependencies | None
    denial_log: DeniedRequestLog | None = None


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
    await authenticate(spec.access, dependencies.authenticator, is_sign_in_path=spec.path.startswith("/auth/"))
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
        body = read_body(spec.body, raw or b"{}")
        if spec.body_parameter is not None:
            arguments[spec.body_parameter] = body

    async def run(caller: SessionCaller | ApiKeyCaller | None) -> Response:
        g.caller = caller
        return _build_response(spec, await handler(**arguments))

    if spec.idempotent and dependencies.idempotency_store is not None and header_value(b"idempotency-key") is not None:
        return await execute_once(dependencies.idempotency_store, current_caller(), raw, run, spec.act)
    return await run(g.caller)


async def _read_raw_body(spec: ApiOperation, request: Request) -> bytes:
    try:
        async with asyncio.timeout(request.body_timeout):
            raw: bytes = await request.body
    except TimeoutError:
        abort(408)
    request.body.clear()
    g.has_read_body = True
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
