"""The webhook world with its feed on a real loopback port, and a WebSocket client that reads its messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hypercorn.asyncio.run
import hypercorn.protocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from adapters.http.app import create_app
from adapters.http.feed.endpoint import FeedConnectionLimiter, FeedEndpoint
from adapters.http.feed.stream import FeedDependencies
from adapters.http.server import hypercorn as hypercorn_http_and_websocket_patch
from app.runtime.supervisor import LockWithTimeout
from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import KeyId
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from domain.telemetry.replay import FeedReadingReplayService
from support.http import listening
from support.waiting import TIMEOUT_S
from support.webhook_world import ACCOUNT, WebhookWorld

HOUR_MS = 3_600_000


class FakeAuthenticator:
    """An `AuthenticatorPort` that accepts the tokens and keys a test names."""

    def __init__(self, world: WebhookWorld) -> None:
        self._world = world
        self.tokens: dict[str, tuple[SessionCaller, int]] = {}
        self.keys: dict[str, KeyId] = {}

    def accept_token(self, token: str, role: Role = Role.OWNER, *, for_ms: int = HOUR_MS) -> str:
        self.tokens[token] = (self._world.session(role), self._world.clock.now_ms() + for_ms)
        return token

    def accept_key(self, key_id: KeyId) -> str:
        secret = f"sk_live_{key_id}"
        self.keys[secret] = key_id
        return secret

    async def authenticate_token(self, token: str, address: str) -> tuple[SessionCaller, int]:
        if token not in self.tokens or self.tokens[token][1] <= self._world.clock.now_ms():
            raise Unauthenticated("This token is not valid. Sign in again.")
        return self.tokens[token]

    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller:
        if secret not in self.keys:
            raise Unauthenticated("This API key does not exist.")
        return ApiKeyCaller(ACCOUNT, self.keys[secret], "Robot", address)


class FeedListener:
    def __init__(self, connection: ClientConnection) -> None:
        self.raw = connection

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            return json.loads(await self.raw.recv())  # type: ignore[no-any-return]

    async def send(self, **message: Any) -> None:
        await self.raw.send(json.dumps(message))

    async def closed(self) -> int:
        """The server's close code; messages before it are skipped."""
        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    await self.raw.recv()
        assert self.raw.close_code is not None
        return self.raw.close_code

    async def is_quiet(self, for_s: float = 0.15) -> bool:
        """Whether the server sends nothing for a while."""
        try:
            async with asyncio.timeout(for_s):
                await self.raw.recv()
        except TimeoutError:
            return True
        return False


class FeedWorld:
    def __init__(self, world: WebhookWorld, url: str, callers: FakeAuthenticator, live: FeedEndpoint) -> None:
        self.world = world
        self.live = live
        self.callers = callers
        self.url = url.replace("http://", "ws://") + "/api/v1/ws"

    @contextlib.asynccontextmanager
    async def client(self, query: str = "", **options: Any) -> AsyncIterator[FeedListener]:
        # A client that leaves with a full buffer never reads the server's close frame; the default wait is ten seconds.
        async with connect(self.url + query, **{"close_timeout": 0.5, **options}) as connection:
            yield FeedListener(connection)

    async def wait_until_empty(self) -> None:
        """Wait until all clients have left."""
        async with asyncio.timeout(TIMEOUT_S):
            while self.live.limiter.connection_count:
                await asyncio.sleep(0.005)


@contextlib.contextmanager
def patched_hypercorn() -> Iterator[None]:
    """Serve with the program's own HTTP/1.1 classes, which give the feed its socket."""
    protocol: Any = hypercorn.protocol
    runner: Any = hypercorn.asyncio.run
    before = protocol.H11Protocol, protocol.h11.WSStream, runner.TCPServer
    hypercorn_http_and_websocket_patch.patch_hypercorn()
    try:
        yield
    finally:
        protocol.H11Protocol, protocol.h11.WSStream, runner.TCPServer = before


@contextlib.asynccontextmanager
async def feed_world(
    world: WebhookWorld | None = None,
    *,
    wired: bool = True,
    ping_every_s: float | None = None,
    commit_lock: asyncio.Lock | None = None,
    limiter: FeedConnectionLimiter | None = None,
    **more: Any,
) -> AsyncIterator[FeedWorld]:
    """`wired` False: behind a plain ASGI server without access to the socket. `commit_lock`: held while readings are stored."""
    world = world or await WebhookWorld().populate()
    callers = FakeAuthenticator(world)
    audience = FeedSnapshotAndReplayService(uow=world.uow, clock=world.clock)
    missed_readings = FeedReadingReplayService(uow=world.uow, engine=ReferenceTelemetryEngine())
    sources = FeedDependencies(audience, world.feed, missed_readings, LockWithTimeout(commit_lock or asyncio.Lock()))
    limiter = limiter or FeedConnectionLimiter()
    live = FeedEndpoint(sources=sources, authenticator=callers, clock=world.clock, limiter=limiter, **more)
    with patched_hypercorn() if wired else contextlib.nullcontext():
        async with listening(create_app(blueprints=[], authenticator=callers, feed=live), ping_every_s=ping_every_s) as url:
            yield FeedWorld(world, url, callers, live)
            world.feed.stop()
