"""One HTTP call: credentials, idempotency key, retries, errors."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Self
from urllib.parse import quote

import httpx

from latchboard_client.codec import UNSET, Unset, decode, encode, query_text
from latchboard_client.errors import ApiError, TransportError, api_error
from latchboard_client.retries import REPEATABLE, RetryPolicy

Token = str | Callable[[], str]


class AsyncTransport:
    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        token: Token | None = None,
        timeout_s: float = 40.0,
        retries: RetryPolicy | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """`url`: of the service, such as `https://latchboard.example.com`. `token`: an access token, or a function that gives one
        that is valid now. `http`: an httpx client with settings of your own; it is not closed here."""
        self.url = url.rstrip("/")
        self.http = http or httpx.AsyncClient(timeout=timeout_s)
        self._owns_http = http is None
        self._api_key, self._token = api_key, token
        self._retries = retries or RetryPolicy()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._owns_http:
            await self.http.aclose()

    def credentials(self) -> dict[str, str]:
        """The header that authenticates; empty for calls that anyone may make."""
        if self._api_key is not None:
            return {"X-Api-Key": self._api_key}
        token = self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _call(
        self,
        returns: Any,
        method: str,
        path: list[str | int],
        *,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        headers: dict[str, str | Unset] | None = None,
        idempotency_key: str | Unset | None = None,
    ) -> Any:
        """`idempotency_key`: None where the operation takes none; UNSET makes one up, so that the call can be repeated safely."""
        result, _ = await self._send(returns, method, path, query or {}, body, headers or {}, idempotency_key)
        return result

    async def _entries(self, returns: Any, path: list[str | int], *, query: dict[str, Any]) -> AsyncIterator[Any]:
        """The entries of a list, page by page."""
        while True:
            page, following = await self._send(returns, "GET", path, query, None, {}, None)
            for entry in page if isinstance(page, list) else page.data:
                yield entry
            if following is None:
                return
            query = query | {"cursor": following}

    async def _send(
        self,
        returns: Any,
        method: str,
        path: list[str | int],
        query: dict[str, Any],
        body: dict[str, Any] | None,
        headers: dict[str, str | Unset],
        idempotency_key: str | Unset | None,
    ) -> tuple[Any, str | None]:
        """The result, and the cursor of the page after it."""
        sent = {name: value for name, value in headers.items() if value is not UNSET}
        if idempotency_key is not None:
            sent["Idempotency-Key"] = str(uuid.uuid4()) if idempotency_key is UNSET else idempotency_key
        request: dict[str, Any] = {
            "method": method,
            "url": f"{self.url}/api/v1/" + "/".join(quote(str(part), safe="") for part in path),
            "params": {name: query_text(value) for name, value in query.items() if value is not UNSET},
            "json": None if body is None else encode(body),
        }
        repeatable = method in REPEATABLE or idempotency_key is not None
        attempt = 1
        while True:
            try:
                response = await self.http.request(**request, headers=sent | self.credentials())
                return _result(returns, response), _next_cursor(response)
            except httpx.TransportError as error:
                pause = self._retries.pause_s(attempt, repeatable, None, "", None)
                if pause is None:
                    raise TransportError(f"{method} {request['url']}: {error!r}") from error
            except ApiError as error:
                pause = self._retries.pause_s(attempt, repeatable, error.status, error.code, error.retry_after_s)
                if pause is None:
                    raise
            await asyncio.sleep(pause)
            attempt += 1


def _next_cursor(response: httpx.Response) -> str | None:
    link = response.links.get("next")
    return None if link is None else httpx.URL(link["url"]).params.get("cursor")


def _result(returns: Any, response: httpx.Response) -> Any:
    if response.is_success and returns is str:
        return response.text
    try:
        body = response.json()
    except json.JSONDecodeError:
        body = None
    if not response.is_success or body is None:
        raise api_error(response.status_code, body, response.headers.get("Retry-After"))
    return decode(returns, body)
