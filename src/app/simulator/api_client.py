"""The service's API as the simulator needs it: signed in, signed in anew when a token ends, and every refusal in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx

from app.simulator.options import ApiCredentials, SimulationError

RESPONSE_TIMEOUT_S = 40.0

TokenIssuer = Callable[[], Awaitable[str]]


class ApiClient:
    """Raises SimulationRefused from every call."""

    def __init__(self, access: ApiCredentials, issue: TokenIssuer | None = None) -> None:
        """`issue` gives an access token where none is given and nobody signs in."""
        self._credentials = access
        self._issue_token = issue
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(base_url=f"{access.url}/api/v1", timeout=RESPONSE_TIMEOUT_S, limits=limits)

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

    async def delete(self, path: str) -> Any:
        return await self._request_json("DELETE", path, None)

    async def _request_json(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        answer = await self._send(method, path, body)
        if answer.status_code == 401 and self._credentials.token is None and path != "/auth/login":
            await self._sign_in()
            answer = await self._send(method, path, body)
        try:
            said = answer.json()
        except ValueError:
            raise SimulationError(
                f"{self._credentials.url}{path} gives no JSON ({answer.status_code}). Is it Latchboard?"
            ) from None
        if answer.is_error:
            raise SimulationError(f"{path}: {said.get('error')}: {said.get('message')}")
        return said

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            return await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise SimulationError(f"{self._credentials.url} does not answer: {error!r}. Is the service running?") from None

    async def _sign_in(self) -> None:
        access = self._credentials
        if access.email is None and self._issue_token is not None:
            self._set_token(await self._issue_token())
            return
        if access.email is None or access.password is None:
            raise SimulationError("Give --token, or --email and --password.")
        signed_in = await self._request_json("POST", "/auth/login", {"email": access.email, "password": access.password})
        self._set_token(str(signed_in["accessToken"]))

    def _set_token(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Bearer {token}"
