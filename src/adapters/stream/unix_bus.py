"""The feed's messages between the worker processes of one machine, over Unix sockets in a folder that only they can enter, and
the JSON of these messages, which the instances of a cluster use too.

Each worker listens on a socket of its number and connects to those of the others. A message is its length, a letter and JSON; the
first of a connection is the sender's name. Messages to a worker that is away, or reads too slowly, are lost; the receivers notice
by their numbers (`domain.feed.interest`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from domain.events.model import Event
from domain.feed.interest import PeerFeedInterestMessage, PeerFeedReadingsMessage

MAX_UNSENT_BYTES = 8 * 1024 * 1024
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 1.0
_NAME, _READINGS, _INTEREST = b"n", b"r", b"i"

Receiver = Callable[[str, bytes], Awaitable[None] | None]

encode = msgspec.json.encode
decode_interest = msgspec.json.Decoder(PeerFeedInterestMessage).decode

log = structlog.get_logger("worker_bus")


def decode_readings(body: bytes) -> PeerFeedReadingsMessage:
    """Raises msgspec.MsgspecError for a message of another version, as `decode_interest` does."""
    try:
        fields = msgspec.json.decode(body)
        return PeerFeedReadingsMessage(**fields | {"events": [Event(**each) for each in fields["events"]]})
    except (KeyError, TypeError) as error:
        raise msgspec.DecodeError(str(error)) from None


class UnixSocketFeedBus:
    """Implements `FeedMessageBus`."""

    def __init__(self, folder: Path, number: int, count: int, name: str) -> None:
        """`number`: of this worker, 1 to `count`; `name`: of its process, which no other one ever has."""
        self._folder = folder
        self._number = number
        self._name = name
        self._peers = [other for other in range(1, count + 1) if other != number]
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[int] = set()
        self._receivers: dict[bytes, Receiver] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        path = self._path(self._number)
        path.unlink(missing_ok=True)  # of the process that this one replaces
        self._server = await asyncio.start_unix_server(self._serve, path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers.values():
            writer.close()

    async def announce_readings(self, readings: PeerFeedReadingsMessage) -> None:
        self._send(_READINGS, encode(readings))

    async def announce_interest(self, interest: PeerFeedInterestMessage) -> None:
        self._send(_INTEREST, encode(interest))

    async def on_readings(self, call: Callable[[str, PeerFeedReadingsMessage], Awaitable[None] | None]) -> None:
        self._receivers[_READINGS] = lambda sender, body: call(sender, decode_readings(body))

    async def on_interest(self, call: Callable[[str, PeerFeedInterestMessage], Awaitable[None] | None]) -> None:
        self._receivers[_INTEREST] = lambda sender, body: call(sender, decode_interest(body))

    async def flush(self) -> None:
        """Nothing waits here: what was announced is in the sockets' buffers."""

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    def _send(self, kind: bytes, body: bytes) -> None:
        for peer in self._peers:
            writer = self._writers.get(peer)
            if writer is None or writer.is_closing():
                self._begin_connect(peer)
            elif writer.transport.get_write_buffer_size() < MAX_UNSENT_BYTES:
                writer.write(_frame(kind, body))

    def _begin_connect(self, peer: int) -> None:
        if peer not in self._connecting:
            self._connecting.add(peer)
            self._own(asyncio.create_task(self._connect(peer), name=f"worker-bus-{peer}"))

    async def _connect(self, peer: int) -> None:
        """A worker that is away is tried again with the next message."""
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    _, writer = await asyncio.open_unix_connection(self._path(peer))
                writer.write(_frame(_NAME, self._name.encode()))
                self._writers[peer] = writer
        finally:
            self._connecting.discard(peer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._own(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the other worker has ended
                await self._receive(reader)
        except msgspec.MsgspecError as error:
            log.error("a message of another worker cannot be read; its connection is closed", error=str(error))
        finally:
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        _, name = await _read_frame(reader)
        sender = name.decode()
        while True:
            kind, body = await _read_frame(reader)
            receiver = self._receivers.get(kind)
            waiting = None if receiver is None else receiver(sender, body)
            if waiting is not None:
                await waiting

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _frame(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body


async def _read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    size = int.from_bytes(head[:4], "big")
    if size > MAX_MESSAGE_BYTES:
        raise msgspec.DecodeError(f"a message of {size} bytes")
    return head[4:], await reader.readexactly(size)
