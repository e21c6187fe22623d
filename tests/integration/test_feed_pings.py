"""The server pings a feed client through the program's own HTTP classes, and the program does so every 20 seconds."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

from app.config.settings import Settings
from app.wiring.http import create_connection_limiter
from app.wiring.http_listeners import hypercorn_config
from support.feed_world import feed_world
from support.waiting import TIMEOUT_S

PING = 0x89
UPGRADE = (
    "GET /api/v1/ws?token={} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def next_frame(reader: asyncio.StreamReader) -> int:
    """The first byte of the next frame (RFC 6455, 5.2); its payload is skipped."""
    first, length = await reader.readexactly(2)
    if length == 126:
        length = int.from_bytes(await reader.readexactly(2), "big")
    await reader.readexactly(length)
    return first


async def test_a_quiet_client_is_pinged_again_and_again() -> None:
    async with feed_world(ping_every_s=0.05) as feed:
        there = urlsplit(feed.url)
        reader, writer = await asyncio.open_connection(there.hostname, there.port)
        writer.write(UPGRADE.format(feed.callers.accept_token("ada")).encode())
        async with asyncio.timeout(TIMEOUT_S):
            assert b" 101 " in (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]
            pings = 0
            while pings < 3:
                pings += await next_frame(reader) == PING
        writer.close()
        await writer.wait_closed()


def test_the_program_pings_every_twenty_seconds() -> None:
    with socket.socket() as listener:
        connections = create_connection_limiter(Settings())
        assert hypercorn_config([listener], connections).websocket_ping_interval == 20.0
