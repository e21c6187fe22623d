"""What goes out to one feed client, and the short way there.

An event is one sequence of bytes for all clients: its JSON, its cursor and the WebSocket frame around them are made once. Where
the server offers its socket (`EXTENSION` in the ASGI scope), these bytes are written to it as they are, without a task being
woken; elsewhere the same text takes the way through the server. Either way nothing is compressed: a compressor has a memory of
what its one client was sent before, so it would have to run, and be kept, once a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from domain.events.model import FeedFrame
from domain.kernel.cursors import EVENTS, encode_cursor

FRAME_WRITER_EXTENSION = "latchboard.wire"
MESSAGE_TOO_LONG_KEY = "latchboard.too_long"
"""In a `websocket.receive`: here was a message longer than the server takes."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes that wait in front of the socket, beside what the kernel holds. More than that, and events wait as references instead."""
_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, _LENGTH_IN_64_BITS = b"\x81", 126, 127

AsgiSend = Callable[[dict[str, Any]], Awaitable[None]]

_cursor_bytes = lru_cache(maxsize=4_096)(lambda position: encode_cursor(EVENTS, position).encode())


def text_frame(text: bytes) -> bytes:
    """One unmasked, final text frame of RFC 6455, 5.2."""
    size = len(text)
    if size < _LENGTH_IN_16_BITS:
        return b"%b%c%b" % (_FINAL_TEXT_FRAME, size, text)
    if size < 1 << 16:
        return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, size.to_bytes(2, "big"), text)
    return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_64_BITS, size.to_bytes(8, "big"), text)


def event_json(head: bytes, position: int) -> bytes:
    """The event's JSON object with the cursor of `position` as its last member."""
    return b'%b,"cursor":"%b"}' % (head, _cursor_bytes(position))


class FrameWriter:
    """The socket under a WebSocket connection. Whoever writes to it writes whole frames."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._transport = writer.transport

    @property
    def is_buffer_full(self) -> bool:
        return self._transport.get_write_buffer_size() > MAX_BUFFERED_BYTES

    def write(self, data: bytes) -> None:
        """Never waits. What is written to a connection that is closing is lost with it."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Until most of what was written has been taken. Raises ConnectionError when the client is gone."""
        await self._writer.drain()

    def abort(self) -> None:
        self._transport.abort()


class FeedSender:
    def __init__(self, send: AsgiSend, wire: FrameWriter | None) -> None:
        self._send = send
        self._frame_writer = wire

    def try_send_event(self, frame: FeedFrame, position: int) -> bool:
        """Send an event without waiting. False where that cannot be: then it takes `say`."""
        wire = self._frame_writer
        if wire is None or wire.is_buffer_full:
            return False
        if frame.websocket_frame_cursor != position:
            frame.websocket_frame = text_frame(event_json(frame.unclosed_json, position))
            frame.websocket_frame_cursor = position
        wire.write(frame.websocket_frame)
        return True

    async def send_text(self, text: bytes) -> None:
        """Send this text, and wait while the client does not take what it was sent. Raises ConnectionError when it is gone."""
        if self._frame_writer is None:
            await self._send({"type": "websocket.send", "text": text.decode()})
            return
        self._frame_writer.write(text_frame(text))
        if self._frame_writer.is_buffer_full:
            await self._frame_writer.drain()

    def abort(self) -> None:
        """Let go of a client that takes nothing any more, goodbyes included."""
        if self._frame_writer is not None:
            self._frame_writer.abort()
