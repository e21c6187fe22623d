"""How long the server keeps a connection: until the client closes it, the idle timeout, or the stop of the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from operator import not_

import pytest
from hypercorn.asyncio import serve

from adapters.http.core.callers import AllowedCallers
from adapters.http.core.operation import ApiBlueprint
from adapters.http.server.limits import AddressBans, HttpConnectionLimiter
from app.wiring.http_listeners import hypercorn_config
from support.feed_world import patched_hypercorn
from support.http import HttpWorld
from support.waiting import TIMEOUT_S, until

IDLE_TIMEOUT_S = 0.3
NEVER_S = 3600.0
REQUEST = b"GET /api/v1/%s HTTP/1.1\r\nHost: latchboard\r\n\r\n"


def probes(_: HttpWorld) -> Sequence[ApiBlueprint]:
    bp = ApiBlueprint("probes", "T")

    @bp.operation("GET /quick", AllowedCallers.ANYONE, "s")
    async def get_quick() -> dict[str, str]:
        return {}

    @bp.operation("GET /slow", AllowedCallers.ANYONE, "s")
    async def get_slow() -> dict[str, str]:
        await asyncio.sleep(3 * IDLE_TIMEOUT_S)
        return {}

    return [bp]


class Server:
    def __init__(self, port: int, limiter: HttpConnectionLimiter, stop: asyncio.Event) -> None:
        self.port = port
        self.limiter = limiter
        self.stop = stop

    async def open_connections(self) -> float:
        return sum(self.limiter.connection_counts().values())

    async def banned(self) -> int:
        return self.limiter.banned_count()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        client = await asyncio.open_connection("127.0.0.1", self.port)
        await until(self.open_connections, bool)
        return client


@asynccontextmanager
async def serving(idle_timeout_s: float) -> AsyncIterator[Server]:
    world = HttpWorld(blueprints=probes)
    listener = socket.create_server(("127.0.0.1", 0))
    limiter = HttpConnectionLimiter(bans=AddressBans(ban_after=1))
    config = hypercorn_config([listener], limiter)
    config.keep_alive_timeout = idle_timeout_s
    stop = asyncio.Event()
    with patched_hypercorn():
        server = asyncio.create_task(serve(world.app(), config, shutdown_trigger=stop.wait))
        try:
            yield Server(listener.getsockname()[1], limiter, stop)
        finally:
            stop.set()
            await asyncio.wait_for(server, TIMEOUT_S)
            await world.close()


async def get(path: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(REQUEST % path)
    async with asyncio.timeout(TIMEOUT_S):
        await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(2)


@pytest.mark.parametrize("requests", [0, 1, 3])
async def test_a_connection_that_the_client_closes_is_not_kept(requests: int) -> None:
    async with serving(NEVER_S) as server:
        reader, writer = await server.connect()
        for _ in range(requests):
            assert await get(b"quick", reader, writer) == b"{}"
        writer.close()
        await until(server.open_connections, not_)
        assert await server.banned() == 0  # a probe of a load balancer only connects


async def test_an_idle_connection_is_closed_after_its_timeout() -> None:
    async with serving(IDLE_TIMEOUT_S) as server:
        reader, writer = await server.connect()
        assert await get(b"quick", reader, writer) == b"{}"
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
        await until(server.open_connections, not_)
        writer.close()
        assert await server.banned() == 0


async def test_a_connection_without_a_request_is_closed_and_counts_as_a_failure() -> None:
    async with serving(IDLE_TIMEOUT_S) as server:
        reader, writer = await server.connect()
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
        await until(server.banned, bool)
        writer.close()


async def test_a_request_may_outlast_the_idle_timeout_and_the_next_wait_may_not() -> None:
    async with serving(IDLE_TIMEOUT_S) as server:
        reader, writer = await server.connect()
        assert await get(b"slow", reader, writer) == b"{}"
        assert await get(b"slow", reader, writer) == b"{}"
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_stop_closes_an_idle_connection_at_once() -> None:
    async with serving(NEVER_S) as server:
        reader, writer = await server.connect()
        assert await get(b"quick", reader, writer) == b"{}"
        server.stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
        writer.close()
