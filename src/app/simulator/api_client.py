"""A client of the service's API: it signs in, again when the token expires, and raises each refusal as a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx

from app.simulator.options import SimulationError, SimulatorApiCredentials

RESPONSE_TIMEOUT_S = 40.0

TokenIssuer = Callable[[], Awaitable[str]]


class SimulatorApiClient:
    """Every method raises SimulationError."""

    def __init__(self, credentials: SimulatorApiCredentials, issue_token: TokenIssuer | None = None) -> None:
        """`issue_token` supplies an access token when `credentials` hold neither a token nor an email address."""
        self._credentials = credentials
        self._issue_token = issue_token
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(base_url=f"{credentials.url}/api/v1", timeout=RESPONSE_TIMEOUT_S, limits=limits)

    async def __aenter__(self) -> Self:
        if self._credentials.token is None:
            await self._sign_in()
        else:
            self._set_token(self._credentials.token)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        return await self._request_json("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request_json("POST", path, body)

    async def put(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request_json("PUT", path, body)

    async def patch(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request_json("PATCH", path, body)

    async def delete(self, path: str) -> Any:
        return await self._request_json("DELETE", path, None)

    async def _request_json(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        response = await self._send(method, path, body)
        if response.status_code == 401 and self._credentials.token is None and path != "/auth/login":
            await self._sign_in()
            response = await self._send(method, path, body)
        try:
            data = response.json()
        except ValueError:
            raise SimulationError(
                f"{self._credentials.url}{path} does not return JSON ({response.status_code}). Is it Latchboard?"
            ) from None
        if response.is_error:
            raise SimulationError(f"{path}: {data.get('error')}: {data.get('message')}")
        return data

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            return await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise SimulationError(f"{self._credentials.url} does not answer: {error!r}. Is the service running?") from None

    async def _sign_in(self) -> None:
        credentials = self._credentials
        if credentials.email is None and self._issue_token is not None:
            self._set_token(await self._issue_token())
            return
        if credentials.email is None or credentials.password is None:
            raise SimulationError("Give --token, or --email and --password.")
        signed_in = await self._request_json(
            "POST", "/auth/login", {"email": credentials.email, "password": credentials.password}
        )
        self._set_token(str(signed_in["accessToken"]))

    def _set_token(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Bearer {token}"
