"""`/asyncapi.json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from quart import Blueprint, Response


def asyncapi_blueprint(build: Callable[[], dict[str, Any]]) -> Blueprint:
    """`build` is called once, for the first request."""
    bp = Blueprint("asyncapi", __name__)
    made: list[bytes] = []

    @bp.get("/asyncapi.json")
    async def document() -> Response:
        if not made:
            made.append(json.dumps(build(), ensure_ascii=False).encode())
        response = Response(made[0], content_type="application/json")
        response.headers["Cache-Control"] = "no-cache"
        return response

    return bp
