"""`/openapi.json`, and `/docs`: Swagger UI for the same document, served locally."""

from __future__ import annotations

import json
from importlib.resources import files

from quart import Blueprint, Response, abort, current_app, send_file

from adapters.http.openapi.document import build_document

ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
PAGE_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Swagger UI needs inline styles; everything else is loaded from our own origin."""

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
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
START_SCRIPT = """SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#api", deepLinking: true, displayRequestDuration: true, filter: true,
  docExpansion: "none", validatorUrl: null, persistAuthorization: false,
});
"""


def openapi_blueprint(*, version: str) -> Blueprint:
    bp = Blueprint("openapi", __name__)
    made: list[bytes] = []

    @bp.get("/openapi.json")
    async def document() -> Response:
        if not made:  # all blueprints are registered by the first request
            made.append(json.dumps(build_document(current_app, version=version), ensure_ascii=False).encode())
        response = Response(made[0], content_type="application/json")
        response.headers["Cache-Control"] = "no-cache"
        return response

    @bp.get("/docs")
    async def page() -> Response:
        response = Response(HTML_PAGE, content_type="text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = PAGE_CONTENT_SECURITY_POLICY
        return response

    @bp.get("/docs/start.js")
    async def start() -> Response:
        return Response(START_SCRIPT, content_type="text/javascript; charset=utf-8")

    @bp.get("/docs/<name>")
    async def asset(name: str) -> Response:
        if name not in ASSETS:
            abort(404)
        path = str(files("flask_swagger_ui") / "dist" / name)
        response = await send_file(path, mimetype=ASSETS[name], cache_timeout=86_400)
        return Response(await response.get_data(as_text=False), headers=response.headers)

    return bp
