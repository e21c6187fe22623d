"""A syslog receiver on loopback: counts octets, stores what it has read, and drops connections as it is told."""

from __future__ import annotations

import asyncio
import io
import re
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from support.waiting import TIMEOUT_S
from support.webhook_receiver import serving

MESSAGE = re.compile(
    rb"<110>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([!-~]{1,255}) latchboard - ([!-~]{1,32}) - (\{.*\})", re.DOTALL
)
"""RFC 5424, of the audit facility."""

Behaviour = Callable[["SyslogReceiver", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def text_of(message: bytes) -> str:
    found = MESSAGE.fullmatch(message)
    assert found is not None, message
    return found[4].decode()


@dataclass
class SyslogReceiver:
    """`behaviours`: of the next connections; after them each one is read to its end."""

    behaviours: deque[Behaviour] = field(default_factory=deque)
    texts: list[str] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        behave = self.behaviours.popleft() if self.behaviours else read_to_the_end
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await behave(self, reader, writer)
            writer.close()
            await writer.wait_closed()

    async def read_message(self, reader: asyncio.StreamReader) -> None:
        length = await reader.readuntil(b" ")
        self.texts.append(text_of(await reader.readexactly(int(length))))
        async with self._changed:
            self._changed.notify_all()

    async def wait_until(self, is_over: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(is_over)


async def read_to_the_end(receiver: SyslogReceiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            await receiver.read_message(reader)
        except asyncio.IncompleteReadError:
            return


async def reset_at_once(receiver: SyslogReceiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_and_hang(receiver: SyslogReceiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read everything, and never end the connection."""
    await read_to_the_end(receiver, reader, writer)
    await asyncio.Event().wait()


def stop_after_two(listener: socket.socket) -> list[str]:
    """Blocks. Accepts a connection, reads two messages, and stops as a program does that ends: the rest is unread."""
    listener.settimeout(TIMEOUT_S)
    connection, _ = listener.accept()
    with connection, connection.makefile("rb", buffering=0) as octets:
        return [text_of(_read(octets)) for _ in range(2)]


def _read(octets: io.RawIOBase) -> bytes:
    length = b""
    while not length.endswith(b" "):
        length += octets.read(1) or b""
    message = b""
    while len(message) < int(length):
        message += octets.read(int(length) - len(message)) or b""
    return message


@asynccontextmanager
async def syslog_receiver(
    *behaviours: Behaviour, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[SyslogReceiver]:
    receiver = SyslogReceiver(deque(behaviours))
    async with serving(receiver.serve, tls, port) as address:
        receiver.port = int(address.rpartition(":")[2])
        yield receiver
