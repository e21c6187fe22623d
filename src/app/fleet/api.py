"""The service's API as the simulator needs it: signed in, signed in anew when a token ends, and every refusal in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx

from app.fleet.order import Access, SimulationRefused

ANSWER_WITHIN_S = 40.0

Issue = Callable[[], Awaitable[str]]


class Api:
    """Raises SimulationRefused from every call."""

    def __init__(self, access: Access, issue: Issue | None = None) -> None:
        """`issue` gives an access token where none is given and nobody signs in."""
        self._access = access
        self._issue = issue
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(base_url=f"{access.url}/api/v1", timeout=ANSWER_WITHIN_S, limits=limits)

    async def __aenter__(self) -> Self:
        if self._access.token is None:
            await self._sign_in()
        else:
            self._carry(self._access.token)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._ask("POST", path, body)

    async def delete(self, path: str) -> Any:
        return await self._ask("DELETE", path, None)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        answer = await self._send(method, path, body)
        if answer.status_code == 401 and self._access.token is None and path != "/auth/login":
            await self._sign_in()
            answer = await self._send(method, path, body)
        try:
            said = answer.json()
        except ValueError:
            raise SimulationRefused(f"{self._access.url}{path} gives no JSON ({answer.status_code}). Is it Latchboard?") from None
        if answer.is_error:
            raise SimulationRefused(f"{path}: {said.get('error')}: {said.get('message')}")
        return said

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            return await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise SimulationRefused(f"{self._access.url} does not answer: {error!r}. Is the service running?") from None

    async def _sign_in(self) -> None:
        access = self._access
        if access.email is None and self._issue is not None:
            self._carry(await self._issue())
            return
        if access.email is None or access.password is None:
            raise SimulationRefused("Give --token, or --email and --password.")
        signed_in = await self._ask("POST", "/auth/login", {"email": access.email, "password": access.password})
        self._carry(str(signed_in["accessToken"]))

    def _carry(self, token: str) -> None:
        self._client.headers["Authorization"] = f"Bearer {token}"
