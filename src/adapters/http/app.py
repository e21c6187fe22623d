"""Creates the ASGI application from blueprints. It opens nothing and does not depend on a server.

app = create_app(blueprints=[auth_blueprint(...), ...], authenticator=..., idempotency_store=IdempotencyStore(...))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quart import Blueprint, Quart

from adapters.http.core.callers import TLS_AT_PROXY, TRUSTED_PROXIES, AuthenticatorPort, TrustedProxies
from adapters.http.core.errors import answering_always, install_error_handlers
from adapters.http.core.idempotency import IdempotencyStore
from adapters.http.core.middleware import (
    HttpMiddlewareSettings,
    ResponseObserver,
    SizeLimitedRequest,
    install_middleware,
    run_with_whole_body,
)
from adapters.http.core.operation import API_DEPENDENCIES, RequestHandlingDependencies
from adapters.http.core.quart_app import TrimmedQuart
from adapters.http.core.schemas import CLOCK
from adapters.http.feed.endpoint import FeedEndpoint
from domain.kernel.clock import Clock
from domain.kernel.life import DatabaseLife
from domain.kernel.ports import DeniedRequestLog


def create_app(
    *,
    blueprints: Sequence[Blueprint],
    authenticator: AuthenticatorPort,
    feed: FeedEndpoint | None = None,
    idempotency_store: IdempotencyStore | None = None,
    denial_log: DeniedRequestLog | None = None,
    proxies: TrustedProxies | None = None,
    settings: HttpMiddlewareSettings | None = None,
    observer: ResponseObserver | None = None,
    life: DatabaseLife | None = None,
    clock: Clock | None = None,
) -> Quart:
    """`clock`: needed where an object of the `blueprints` ends.

    `observer` is called for every response with method, route or "", status and seconds."""
    settings = settings or HttpMiddlewareSettings()
    app = TrimmedQuart("latchboard", static_folder=None, template_folder=None)
    app.request_class = SizeLimitedRequest
    app.config.update(
        BODY_TIMEOUT=settings.body_timeout_s, RESPONSE_TIMEOUT=None, PROVIDE_AUTOMATIC_OPTIONS=True, PROPAGATE_EXCEPTIONS=False
    )
    app.url_map.merge_slashes = False  # a path with "//" is not found instead of redirected
    dependencies = RequestHandlingDependencies(authenticator, idempotency_store, denial_log, life or DatabaseLife())
    app.extensions[API_DEPENDENCIES] = dependencies
    app.after_serving(dependencies.close)
    app.extensions[CLOCK] = clock
    app.extensions[TRUSTED_PROXIES] = proxies
    app.extensions[TLS_AT_PROXY] = settings.hsts
    if idempotency_store is not None:
        app.after_serving(idempotency_store.close)
    install_middleware(app, settings, observer)
    install_error_handlers(app)
    for blueprint in blueprints:
        app.register_blueprint(blueprint)
    dependencies.objects.add(app.view_functions.values())
    app.asgi_app = answering_always(app.asgi_app)  # type: ignore[method-assign]
    if feed is not None:
        mount(app, feed)
    return app


class MountableAsgiApp(Protocol):
    """An ASGI application for the requests that it matches."""

    def matches(self, scope: dict[str, Any]) -> bool: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


def mount(app: Quart, mounted: MountableAsgiApp) -> None:
    """Requests that `mounted` matches never reach `app`."""
    beside, answering = app.asgi_app, answering_always(mounted)

    async def route(scope: Any, receive: Any, send: Any) -> None:
        if not mounted.matches(scope):
            await beside(scope, receive, send)
        elif scope["type"] == "http":
            await run_with_whole_body(answering, scope, receive, send)
        else:
            await mounted(scope, receive, send)

    app.asgi_app = route  # type: ignore[method-assign]
