"""`/mcp`: the Model Context Protocol over HTTP, in the service. The first call imports the SDK; most services never get one.

Each message carries its API key, and without a valid one nobody reaches the SDK. The tools call the API inside this process, with
that key and the caller's address, and have no other right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, PermissionDenied, Unauthenticated

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

    from adapters.mcp.server import McpApiHttpClient

PATH = "/mcp"
KEY_PREFIX = "sk_live_"
MAX_BODY_BYTES = 256 * 1024
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 2.0
_FORWARDED = ("x-forwarded-for", "forwarded")
_STATUSES: Mapping[type[DomainError], int] = {Unauthenticated: 401, PermissionDenied: 403}

AsgiApp = Any
CheckKey = Callable[[str, dict[str, Any]], Awaitable[object]]
"""Takes the key and the ASGI scope of the request. Raises Unauthenticated for a key that is unknown, disabled or has ended;
PermissionDenied for an address that it may not be used from."""


@service
class McpEndpoint:
    """An ASGI application beside the API's. `api` is the application that its tools call."""

    api: AsgiApp
    check_key: CheckKey
    version: str
    headers: Sequence[tuple[bytes, bytes]]
    """Of every answer, unless the SDK has set them; names in lower case."""
    _app: AsgiApp = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @staticmethod
    def matches(scope: dict[str, Any]) -> bool:
        return scope["type"] == "http" and scope["path"] in (PATH, f"{PATH}/")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        send = _with_headers(send, self.headers)
        key = find_key({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        try:
            if key is None:
                raise Unauthenticated("Send an API key as X-Api-Key or as Authorization: Bearer sk_live_…")
            await self.check_key(key, scope)
        except DomainError as error:
            await _refuse(send, _STATUSES.get(type(error), 503), error.code, error.message)
            return
        await self._start()
        await self._app({**scope, "path": PATH, "raw_path": PATH.encode()}, receive, send)

    async def stop(self) -> None:
        """End open exchanges and the background task."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_TIMEOUT_S)
            self._task.cancel()

    async def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="mcp")
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._ready.wait()

    async def _run(self) -> None:
        module = await asyncio.to_thread(import_module, "adapters.mcp.server")  # takes a second, which devices must not wait
        server = module.create_server(self._connect, version=self.version)
        self._app = module.create_http_app(server, PATH, MAX_BODY_BYTES)
        async with server.session_manager.run():
            self._ready.set()
            await self._stopping.wait()

    @asynccontextmanager
    async def _connect(self, ctx: Context[Any, Any]) -> AsyncIterator[McpApiHttpClient]:
        import httpx

        from adapters.mcp.server import McpApiError, McpApiHttpClient

        headers = {name.lower(): value for name, value in (ctx.headers or {}).items()}
        key = find_key(headers)
        if key is None:
            raise McpApiError(401, {"error": "UNAUTHENTICATED", "message": "The message carries no API key."})
        client = getattr(ctx.request_context.request, "client", None)
        transport = httpx.ASGITransport(self.api, client=tuple(client) if client is not None else ("", 0))
        sent = {"X-Api-Key": key} | {name: headers[name] for name in _FORWARDED if name in headers}
        async with httpx.AsyncClient(transport=transport, base_url="http://latchboard/api/v1", headers=sent) as http:
            yield McpApiHttpClient(client=http)


def find_key(headers: Mapping[str, str]) -> str | None:
    """The API key in headers with names in lower case."""
    key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()
    return key if key.startswith(KEY_PREFIX) else None


def _with_headers(send: Any, wanted: Sequence[tuple[bytes, bytes]]) -> Any:
    async def start_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            message = {**message, "headers": [*headers, *(each for each in wanted if each[0] not in present)]}
        await send(message)

    return start_with_headers


async def _refuse(send: Any, status: int, code: str, message: str) -> None:
    body = json.dumps({"error": code, "message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
