"""The application: blueprints in, one ASGI app out. It opens nothing and knows no server.

app = create_app(blueprints=[auth_blueprint(...), ...], authenticator=..., answers=AnswerBook(...))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quart import Blueprint, Quart

from adapters.http.auth import PROXIES, Authenticator
from adapters.http.errors import install_errors
from adapters.http.feed import LiveFeed
from adapters.http.idempotency import AnswerBook
from adapters.http.openapi_page import openapi_blueprint
from adapters.http.operation import FOUNDATION, Foundation
from adapters.http.proxies import TrustedProxies
from adapters.http.routes import Application
from adapters.http.security import HttpSettings, Observer, install_security
from domain.kernel.refusals import Refusals

MAX_BODY = 256 * 1024



def create_app(
    *,
    blueprints: Sequence[Blueprint],
    authenticator: Authenticator,
    feed: LiveFeed | None = None,
    answers: AnswerBook | None = None,
    refusals: Refusals | None = None,
    proxies: TrustedProxies | None = None,
    settings: HttpSettings | None = None,
    observer: Observer | None = None,
    version: str = "0",
) -> Quart:
    """`observer` hears of every response: (method, route or "", status, seconds); for metrics and the access log."""
    settings = settings or HttpSettings()
    app = Application("latchboard", static_folder=None, template_folder=None)
    app.config.update(
        MAX_CONTENT_LENGTH=MAX_BODY,
        BODY_TIMEOUT=settings.body_timeout_s,
        RESPONSE_TIMEOUT=None,
        PROVIDE_AUTOMATIC_OPTIONS=True,
        PROPAGATE_EXCEPTIONS=False,
    )
    app.url_map.merge_slashes = False  # "//" is another address, and an address nobody has is not found: no redirect to guess at
    app.extensions[FOUNDATION] = Foundation(authenticator, answers, refusals)
    app.extensions[PROXIES] = proxies
    if answers is not None:
        app.after_serving(answers.close)
    install_security(app, settings, observer)
    install_errors(app)
    for blueprint in (*blueprints, openapi_blueprint(version=version)):
        app.register_blueprint(blueprint)
    if feed is not None:
        app.asgi_app = _beside(app.asgi_app, feed)  # type: ignore[method-assign]
    return app


def _beside(app: Any, feed: LiveFeed) -> Any:
    async def either(scope: Any, receive: Any, send: Any) -> None:
        await (feed if feed.serves(scope) else app)(scope, receive, send)

    return either
