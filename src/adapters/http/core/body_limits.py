"""How long a body may be. The length is known before the route is, so the exceptions are named by their paths."""

from __future__ import annotations

import functools
from typing import Any

from quart import Request

MAX_BODY_BYTES = 256 * 1024
MAX_FLEET_BODY_BYTES = 1024 * 1024
"""Of a fleet's document with as many objects as one may name."""
_LONGER_BODIES = {f"/api/v1/fleet/{step}": MAX_FLEET_BODY_BYTES for step in ("plan", "apply")}


class SizeLimitedRequest(Request):
    def __init__(self, method: str, scheme: str, path: str, *parts: Any, **options: Any) -> None:
        super().__init__(
            method, scheme, path, *parts, **options | {"max_content_length": _LONGER_BODIES.get(path, MAX_BODY_BYTES)}
        )

    @functools.cached_property
    def blueprints(self) -> list[str]:
        """Quart works this out at each use: four times a request."""
        return super().blueprints
