"""For machines that watch us, and for a person who opens the address in a browser. None of it needs a caller or a database.

`/healthz`: the process answers. `/readyz`: it can do its work, else 503 and what ails. `/metrics`: Prometheus text.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from quart import Blueprint, Response

Probe = Callable[[], Awaitable[Mapping[str, str]]]

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Latchboard</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 38rem; margin: 12vh auto; padding: 0 1.5rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem }
p.what { opacity: .75; margin-top: 0 }
li { margin: .35rem 0 }
code { font-size: .9em }
</style>
</head>
<body>
<h1>Latchboard</h1>
<p class="what">Control plane for relay devices. Version @VERSION@ is running.</p>
<ul>
<li><a href="/docs">API reference</a>, to read and to try; as a file: <a href="/openapi.json"><code>/openapi.json</code></a></li>
<li><a href="/readyz"><code>/readyz</code></a>: whether database, broker and workers are well</li>
<li><a href="/metrics"><code>/metrics</code></a>: numbers for Prometheus</li>
</ul>
<p>The first login was printed when the service started for the first time. <code>latchboard account create</code> makes another
account, <code>latchboard demo</code> shows a fleet at work.</p>
</body>
</html>
"""


def health_blueprint(*, probe: Probe, metrics: Callable[[], bytes], version: str) -> Blueprint:
    bp = Blueprint("health", __name__)
    page = PAGE.replace("@VERSION@", version)

    @bp.get("/healthz")
    async def healthz() -> Response:
        return _json({"status": "ok", "version": version}, 200)

    @bp.get("/readyz")
    async def readyz() -> Response:
        troubles = await probe()
        status = "unavailable" if troubles else "ready"
        return _json({"status": status, "version": version, "troubles": dict(troubles)}, 503 if troubles else 200)

    @bp.get("/metrics")
    async def numbers() -> Response:
        return Response(metrics(), content_type=METRICS_TYPE)

    @bp.get("/")
    async def landing() -> Response:
        response = Response(page, content_type="text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = PAGE_POLICY
        return response

    return bp


def _json(body: Mapping[str, object], status: int) -> Response:
    return Response(json.dumps(body), status=status, content_type="application/json")
