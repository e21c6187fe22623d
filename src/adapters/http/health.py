"""Outside `/api/v1`: is it alive, can it work, what are its figures, and a page that says where to look."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from quart import Blueprint, Response

Checks = Callable[[], Awaitable[Mapping[str, str]]]

_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Latchboard</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem;color:#1b2733;background:#fbfcfd}
h1{font-size:1.6rem}li{margin:.4rem 0}code{background:#eef2f5;padding:.1rem .3rem;border-radius:4px}</style></head>
<body><h1>Latchboard</h1><p>The service is running. Who may switch what is decided here.</p>
<ul><li><a href="/docs">API documentation</a>, machine-readable at <a href="/openapi.json">/openapi.json</a></li>
<li><a href="/readyz">/readyz</a>: can it work? <a href="/healthz">/healthz</a>: is it alive?</li>
<li><a href="/metrics">/metrics</a>: figures for Prometheus</li>
<li>Sign in: <code>POST /api/v1/auth/login</code>; live feed: <code>GET /api/v1/ws</code></li></ul></body></html>
"""


def health_blueprint(*, checks: Checks, metrics: Callable[[], bytes], metrics_type: str) -> Blueprint:
    """`checks` gives what ails each part (database, broker, a worker), empty when all is well."""
    bp = Blueprint("health", __name__)

    @bp.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok"}, 200)

    @bp.get("/readyz")
    async def readyz() -> Response:
        troubles = await checks()
        if troubles:
            return _json({"status": "unready", "troubles": dict(troubles)}, 503)
        return _json({"status": "ready"}, 200)

    @bp.get("/metrics")
    async def figures() -> Response:
        return Response(metrics(), content_type=metrics_type)

    @bp.get("/")
    async def page() -> Response:
        response = Response(_PAGE, content_type="text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = _PAGE_POLICY
        return response

    return bp


def _json(value: object, status: int) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/json")
