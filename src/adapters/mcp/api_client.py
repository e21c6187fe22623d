"""The API as one key sees it. Every call is an ordinary request, so that grants, limits and the log hold for it."""

from __future__ import annotations

import re
from typing import Any

import httpx

REQUEST_TIMEOUT_S = 45.0
"""Longer than the longest `waitSeconds`."""


_PATH = re.compile(r"(?:/[A-Za-z0-9_-]{1,128})+")
"""What the tools call. An agent gives the ids in it, and no id makes it the path of another operation."""


class McpApiError(Exception):
    """The service refused the call. `body` is its error object."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("message", status)))
        self.status = status
        self.body = body


class McpApiHttpClient:
    """`client` has the base URL of the API and the key in its headers."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **query: Any) -> Any:
        """Raises McpApiError."""
        given = {name: value for name, value in query.items() if value is not None}
        return await self._call("GET", path, params=given)

    async def post(self, path: str, body: dict[str, Any], *, idempotency_key: str) -> Any:
        """Raises McpApiError."""
        return await self._call("POST", path, json=body, headers={"Idempotency-Key": idempotency_key})

    async def _call(self, method: str, path: str, **request: Any) -> Any:
        if _PATH.fullmatch(path) is None:
            raise McpApiError(404, {"error": "NOT_FOUND", "message": "There is no such id. Use those that the tools return."})
        try:
            response = await self._client.request(method, path, timeout=REQUEST_TIMEOUT_S, **request)
            body = response.json()
        except (httpx.HTTPError, ValueError) as error:
            message = (
                f"{self._client.base_url} gave no usable answer ({error or type(error).__name__}). Nothing is known to be done."
            )
            raise McpApiError(503, {"error": "UNAVAILABLE", "message": message}) from error
        if response.is_error:
            raise McpApiError(response.status_code, body)
        return body


def key_headers(key: str) -> dict[str, str]:
    return {"X-Api-Key": key}
