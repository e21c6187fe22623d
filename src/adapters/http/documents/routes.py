"""`/openapi.json`, `/asyncapi.json`, and `/docs`: Swagger UI for the first, served locally.

The documents are built for the first request: their models take longer to build than the rest of a start. They are compressed
once as well, and a client that has them gets 304."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from quart import Blueprint, Response, abort, current_app

from adapters.http.core.assets import Asset, asset_response
from domain.kernel.clock import DAY_MS, Clock

JSON = "application/json"
ASSETS = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript", "favicon-32x32.png": "image/png"}
PAGE_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "sandbox allow-scripts allow-same-origin allow-forms allow-modals allow-downloads"
)
"""Swagger UI needs inline styles; everything else is loaded from our own origin. The sandbox lets the page open no window: its
scripts could act inside a window of the dashboard, which has the same origin."""

HTML_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Latchboard API</title>
<link rel="icon" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="/docs/confine.js"></script>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
CONFINE_SCRIPT = """const policy = document.createElement("meta");
policy.httpEquiv = "Content-Security-Policy";
policy.content = `connect-src ${location.origin}/api/v1/ ${location.origin}/openapi.json`;
document.head.append(policy);
"""
"""Runs before Swagger UI, and keeps the page from calling `/dashboard/session`, to which the browser would attach the dashboard's
cookie. A policy that names paths must name the origin too, and behind a proxy only the browser knows it."""
START_SCRIPT = """SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#api", deepLinking: true, displayRequestDuration: true, filter: true,
  docExpansion: "none", validatorUrl: null, persistAuthorization: false,
});
"""


def openapi_blueprint(*, version: str, clock: Clock) -> Blueprint:
    bp = Blueprint("openapi", __name__)
    made: list[str] = []
    by_day: dict[int, Asset] = {}
    assets: dict[str, Asset] = {}

    @bp.get("/openapi.json")
    async def document() -> Response:
        from adapters.http.documents.examples import with_times_to_come
        from adapters.http.documents.openapi import build_document

        if not made:  # all blueprints are registered by the first request
            made.append(json.dumps(build_document(current_app, version=version), ensure_ascii=False, separators=(",", ":")))
        now_ms = clock.now_ms()
        day = now_ms // DAY_MS
        if day not in by_day:
            by_day.clear()
            by_day[day] = Asset(with_times_to_come(made[0], now_ms).encode(), JSON)
        return asset_response(by_day[day])

    @bp.get("/docs")
    async def page() -> Response:
        response = Response(HTML_PAGE, content_type="text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = PAGE_CONTENT_SECURITY_POLICY
        return response

    @bp.get("/docs/confine.js")
    async def confine() -> Response:
        return Response(CONFINE_SCRIPT, content_type="text/javascript; charset=utf-8")

    @bp.get("/docs/start.js")
    async def start() -> Response:
        return Response(START_SCRIPT, content_type="text/javascript; charset=utf-8")

    @bp.get("/docs/<name>")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            abort(404)
        if name not in assets:
            assets[name] = Asset((files("flask_swagger_ui") / "dist" / name).read_bytes(), ASSETS[name])
        return asset_response(assets[name])

    return bp


def asyncapi_blueprint(build: Callable[[], dict[str, Any]]) -> Blueprint:
    """`build` is called once, for the first request."""
    bp = Blueprint("asyncapi", __name__)
    made: list[Asset] = []

    @bp.get("/asyncapi.json")
    async def document() -> Response:
        if not made:
            made.append(Asset(json.dumps(build(), ensure_ascii=False, separators=(",", ":")).encode(), JSON))
        return asset_response(made[0])

    return bp
