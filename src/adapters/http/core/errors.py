"""Maps domain errors and framework errors to HTTP responses; all error responses have the same body.

Only this module knows the HTTP status of an error. An unexpected exception becomes a 500 that contains nothing but its request
id; the details are in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from http import HTTPStatus
from typing import Any

from quart import Quart, Response, g, request
from werkzeug.exceptions import HTTPException

from domain.grants.model import RATE_WINDOW_S
from domain.kernel.errors import (
    Conflict,
    DomainError,
    FieldError,
    Gone,
    NotFound,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
    VersionMismatch,
)

log = logging.getLogger(__name__)

STATUS_BY_ERROR: dict[type[DomainError], int] = {
    ValidationFailed: 400,
    Unauthenticated: 401,
    PermissionDenied: 403,
    NotFound: 404,
    Conflict: 409,
    Gone: 410,
    VersionMismatch: 412,
    RateLimited: 429,
    Unavailable: 503,
}

FRAMEWORK_ERRORS: dict[int, tuple[str, str]] = {
    400: ("BAD_REQUEST", "The request is malformed. Compare it with /openapi.json."),
    404: ("NOT_FOUND", "This path does not exist. /openapi.json lists all paths."),
    405: ("METHOD_NOT_ALLOWED", "This path does not support this method. The Allow header lists the supported methods."),
    408: ("REQUEST_TIMEOUT", "The body did not arrive in time. Send it again without pauses."),
    413: ("PAYLOAD_TOO_LARGE", "The body is larger than 256 KiB, or a fleet's document than 1 MiB. Send a smaller one."),
    415: ("UNSUPPORTED_MEDIA_TYPE", "Send the body as application/json in UTF-8, not compressed."),
    500: ("INTERNAL_ERROR", "Internal error. Try again. If it persists, report the requestId."),
    503: (
        "UNAVAILABLE",
        "The service stopped before it could answer. Look whether the request was carried out, or repeat it with its "
        "Idempotency-Key.",
    ),
}


def http_status(error: DomainError) -> int:
    """The status of the error's class, or of its closest base class in the table."""
    return next(STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR)


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    details: tuple[FieldError, ...] = (),
    retry_after: int | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A response with an `ErrorResponse` body."""
    content: dict[str, object] = {"error": code, "message": message}
    if details:
        content["details"] = [{"field": fault.field, "message": fault.message} for fault in details]
    if retry_after is not None:
        content["retryAfter"] = retry_after
    content["requestId"] = g.get("request_id", "")
    response = Response(json.dumps(content), status=status, content_type="application/json")
    response.headers.update(headers or {})
    return response


def domain_error_response(error: DomainError) -> Response:
    """The response to a domain error."""
    status = http_status(error)
    headers: dict[str, str] = {}
    retry_after = None
    if isinstance(error, RateLimited):
        retry_after = max(1, error.retry_after)
        headers["Retry-After"] = str(retry_after)
        if error.limit is not None:
            headers |= rate_limit_headers(error.limit, error.window_s or RATE_WINDOW_S, 0, retry_after)
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    elif status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="latchboard"'
    return error_response(status, error.code, error.message, details=error.details, retry_after=retry_after, headers=headers)


def rate_limit_headers(limit: int, window_s: int, remaining: int, reset_s: int) -> dict[str, str]:
    """IETF draft-ietf-httpapi-ratelimit-headers: q = quota, w = window, r = remaining, t = seconds until the quota grows."""
    return {"RateLimit-Policy": f'"grant";q={limit};w={window_s}', "RateLimit": f'"grant";r={remaining};t={reset_s}'}


def install_error_handlers(app: Quart) -> None:
    """Give every error, including those of the framework, the same response body."""

    async def on_domain(error: DomainError) -> Response:
        return domain_error_response(error)

    async def on_http(error: HTTPException) -> Response:
        status = error.code or 500
        code, message = FRAMEWORK_ERRORS.get(status, (HTTPStatus(status).name, error.description or HTTPStatus(status).phrase))
        headers = {}
        allowed = getattr(error, "valid_methods", None)
        if allowed:
            headers["Allow"] = ", ".join(sorted(allowed))
        location = error.get_response().headers.get("Location") if 300 <= status < 400 else None
        if location:
            headers["Location"] = location
        return error_response(status, code, message, headers=headers)

    async def on_failure(error: Exception) -> Response:
        log.error("request failed: %s %s", request.method, request.path, exc_info=error)
        return error_response(500, *FRAMEWORK_ERRORS[500])

    app.register_error_handler(DomainError, on_domain)
    app.register_error_handler(HTTPException, on_http)
    app.register_error_handler(Exception, on_failure)


def answering_always(inner: Any) -> Any:
    """The ASGI application, which answers also where no handler can: after a fault of the framework or of a hook, or a
    cancellation that is not of this request, or by a server that stops. The server's own answer would be a 500 without a body."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        has_begun = False

        async def send_noted(event: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(event)

        try:
            await inner(scope, receive, send_noted)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            is_stopped = isinstance(error, asyncio.CancelledError) and task is not None and bool(task.cancelling())
            if is_stopped and not has_begun:
                await _send_error(send, 503, (b"retry-after", b"1"))
            if has_begun or is_stopped:
                raise
            log.error("request failed outside its handler: %s %s", scope["method"], scope["path"], exc_info=error)
            await _send_error(send, 500)

    return answered


async def _send_error(send: Any, status: int, *more: tuple[bytes, bytes]) -> None:
    code, message = FRAMEWORK_ERRORS[status]
    request_id = f"req_{secrets.token_hex(10)}"
    body = json.dumps({"error": code, "message": message, "requestId": request_id}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"connection", b"close"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
