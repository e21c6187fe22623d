"""What every request and response passes: request id, security headers, CORS, limits of the body.

CORS is off by default: the dashboard has the same origin, and other clients are not browsers. Origins named in the settings may
read responses, but the only cookie, the dashboard's, is never for them: credentials are not allowed.

The server reads the next request of a connection only after the body of this one. If a request is answered early, such as with a
refusal, the rest of its body is read first; if it does not arrive, the response says that the connection closes. Otherwise the
client would send its next request on a connection that the server is about to close, and a proxy would make a 502 of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quart import Request, Response, g
from quart.globals import request_ctx
from structlog.contextvars import bind_contextvars, clear_contextvars
from werkzeug.exceptions import RequestEntityTooLarge

from adapters.http.core.headers import RESPONSE_HEADERS
from adapters.http.core.quart_app import TrimmedQuart, header_value

ResponseObserver = Callable[[str, str, int, float], None]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{8,128}")
_ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADERS = "Authorization, Content-Type, X-Api-Key, Idempotency-Key, If-Match, X-Request-Id"
_EXPOSED_HEADERS = ", ".join(RESPONSE_HEADERS)

API_CONTENT_SECURITY_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""For responses that are not pages. A blueprint that serves pages sets its own Content-Security-Policy."""
_DEFAULT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", API_CONTENT_SECURITY_POLICY.encode()),
)
JSON_HEADERS = (*_DEFAULT_HEADERS, (b"cache-control", b"no-store"))


@dataclass(frozen=True, slots=True)
class HttpMiddlewareSettings:
    """`hsts`: browsers reach the service over TLS, which a proxy provides. `body_timeout_s`: how long a request body may take to
    arrive."""

    cors_origins: tuple[str, ...] = ()
    hsts: bool = False
    hsts_subdomains: bool = False
    body_timeout_s: float = 10.0


def install_middleware(app: TrimmedQuart, settings: HttpMiddlewareSettings, observer: ResponseObserver | None) -> None:
    """Register the hooks that set the request id and the response headers."""
    app.default_headers = _default_headers

    @app.before_request
    async def begin() -> Response | None:
        request = request_ctx.request  # not the proxy, which looks the request up at each attribute
        g.began = time.perf_counter()
        given = header_value(b"x-request-id") or ""
        g.request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(10)}"
        clear_contextvars()
        bind_contextvars(request_id=g.request_id)
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return Response("", status=204)
        return None

    @app.after_request
    async def finish(response: Response) -> Response:
        request, headers = request_ctx.request, response.headers
        headers.add("X-Request-Id", g.get("request_id", ""))
        if not g.get("has_read_body") and not await _drain_body(request):
            headers["Connection"] = "close"
        if settings.hsts:
            headers.setdefault(
                "Strict-Transport-Security", "max-age=31536000" + ("; includeSubDomains" if settings.hsts_subdomains else "")
            )
        _add_cors_headers(settings, request, response)
        if observer is not None:
            route = request.url_rule.rule if request.url_rule is not None else ""
            observer(request.method, route, response.status_code, time.perf_counter() - g.get("began", 0.0))
        return response


def _default_headers(response: Response) -> Sequence[tuple[bytes, bytes]]:
    return JSON_HEADERS if response.content_type == "application/json" else _DEFAULT_HEADERS


def _add_cors_headers(settings: HttpMiddlewareSettings, request: Request, response: Response) -> None:
    if not settings.cors_origins:
        return
    response.headers.add("Vary", "Origin")
    origin = request.headers.get("Origin", "")
    if origin not in settings.cors_origins:
        return
    response.headers["Access-Control-Allow-Origin"] = origin
    response.headers["Access-Control-Expose-Headers"] = _EXPOSED_HEADERS
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    if request.method == "OPTIONS":
        response.headers["Access-Control-Allow-Methods"] = _ALLOWED_METHODS
        response.headers["Access-Control-Allow-Headers"] = _ALLOWED_HEADERS
        response.headers["Access-Control-Max-Age"] = "600"


MAX_BODY_BYTES = 256 * 1024
MAX_FLEET_BODY_BYTES = 1024 * 1024
"""Of a fleet's document with as many objects as one may name."""
_LONGER_BODIES = {f"/api/v1/fleet/{step}": MAX_FLEET_BODY_BYTES for step in ("plan", "apply")}
DRAIN_BODY_TIMEOUT_S = 1.0
"""How long an early response waits for the rest of the request body."""


class SizeLimitedRequest(Request):
    """The length is known before the route is, so the exceptions are named by their paths."""

    def __init__(self, method: str, scheme: str, path: str, *parts: Any, **options: Any) -> None:
        super().__init__(
            method, scheme, path, *parts, **options | {"max_content_length": _LONGER_BODIES.get(path, MAX_BODY_BYTES)}
        )

    @functools.cached_property
    def blueprints(self) -> list[str]:
        """Quart works this out at each use: four times a request."""
        return super().blueprints


async def _drain_body(request: Request) -> bool:
    """Read the rest of the request body. False if it does not arrive in time or is too large: the connection must be closed."""
    if not (request.content_length or "Transfer-Encoding" in request.headers):
        return True
    try:
        async with asyncio.timeout(DRAIN_BODY_TIMEOUT_S):
            await request.body
    except (TimeoutError, RequestEntityTooLarge):
        return False
    return True


async def run_with_whole_body(app: Any, scope: Any, receive: Any, send: Any) -> None:
    """Run an ASGI application for one HTTP request. Before an early response, the rest of the body is read."""
    is_arriving = True

    async def receive_part() -> Any:
        nonlocal is_arriving
        event = await receive()
        is_arriving = bool(event.get("more_body"))
        return event

    async def drain() -> None:
        read = 0
        async with asyncio.timeout(DRAIN_BODY_TIMEOUT_S):
            while is_arriving and read <= MAX_BODY_BYTES:
                read += len((await receive_part()).get("body", b""))

    async def send_after_body(event: Any) -> None:
        if event["type"] == "http.response.start" and is_arriving:
            with contextlib.suppress(TimeoutError):
                await drain()
            if is_arriving:
                event = {**event, "headers": [*event["headers"], (b"connection", b"close")]}
        await send(event)

    await app(scope, receive_part, send_after_body)
