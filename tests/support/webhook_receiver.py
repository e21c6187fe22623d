"""Webhook receivers on loopback, correct and faulty ones, that record every received byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from domain.webhooks.reference import service_signature
from support.waiting import TIMEOUT_S, loop_turns


@dataclass
class ReceivedRequest:
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def envelope(self) -> dict[str, Any]:
        return json.loads(self.body)  # type: ignore[no-any-return]

    def signed_with(self, secret: str) -> bool:
        return self.headers["x-service-signature"] == service_signature(secret, self.body)


Behaviour = Callable[["Receiver", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Handles one complete request; False closes the connection."""


@dataclass
class Receiver:
    """`behave` may be changed at any time; it applies from the next request on."""

    behave: Behaviour
    url: str = ""
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    max_open: int = 0
    request_lines: list[bytes] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError):
            while await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.request_lines.append(lines[0].encode())
        self.requests.append(ReceivedRequest(headers, body, asyncio.get_running_loop().time()))
        self._changed.set()
        self.open += 1
        self.max_open = max(self.max_open, self.open)
        try:
            return await self.behave(self, reader, writer)
        finally:
            self.open -= 1

    async def wait_for(self, count: int) -> list[ReceivedRequest]:
        """Wait for at least `count` requests."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.requests) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.requests


ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(handle: ConnectionHandler, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
    """`host:port` of a server that passes each connection to `handle`. At its end every connection is closed."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(run(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=tls)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()
        await loop_turns(10)  # a connection that was just accepted becomes a task only now
        while tasks:
            await asyncio.sleep(0)  # a task that has not begun could not close its connection
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close their sockets in the next round of the loop


@contextlib.asynccontextmanager
async def webhook_receiver(behave: Behaviour, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(behave)
    async with serving(receiver.serve, tls, port) as address:
        receiver.url = f"http{'s' if tls else ''}://{address}/hook"
        yield receiver


def respond(status: int = 200, headers: str = "", body: bytes = b"ok", after_s: float = 0.0) -> Behaviour:
    """A complete response on a connection that stays open. `headers`: lines with their CRLF."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(after_s)
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        await writer.drain()
        return True

    return behave


def respond_once_open(count: int) -> Behaviour:
    """No response before this many requests are open at once."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while receiver.max_open < count:
            await asyncio.sleep(0.01)
        return await respond(after_s=0.01)(receiver, reader, writer)

    return behave


def drip(what: bytes, start: bytes = b"", every_s: float = 0.05) -> Behaviour:
    """`start` at once, then `what` repeatedly without an end."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(start)
        while True:
            writer.write(what)
            await writer.drain()
            await asyncio.sleep(every_s)

    return behave


def send_and_close(what: bytes) -> Behaviour:
    """These bytes, then the end of the connection."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(what)
        await writer.drain()
        return False

    return behave


def reset() -> Behaviour:
    """A TCP reset instead of a response."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER: on, 0 s
        writer.transport.abort()
        return False

    return behave


def never_respond() -> Behaviour:
    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(3_600)
        return False

    return behave


def respond_with_megabytes(megabytes: int) -> Behaviour:
    """A huge response; the last element of `receiver.lines` says how much of it was read."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        size = megabytes * 1_000_000
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        poured = 0
        with contextlib.suppress(ConnectionError):
            while poured < size:
                writer.write(bytes(100_000))
                poured += 100_000
                await writer.drain()
        receiver.request_lines.append(str(poured).encode())
        return False

    return behave


def in_sequence(*behaviours: Behaviour) -> Behaviour:
    """One behaviour for each request; the last one for all further requests."""
    left = list(behaviours)

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        return await chosen(receiver, reader, writer)

    return behave
