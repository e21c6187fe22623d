"""Sends frames to one feed client, where possible directly to its socket.

An event is the same sequence of bytes for all clients: its JSON, its cursor and the WebSocket frame are encoded once. If the
server provides its socket (`FRAME_WRITER_EXTENSION` in the ASGI scope), these bytes are written to it without waking a task;
otherwise the same text is sent through the server. Nothing is compressed: a compressor depends on what its client received
before, so it would have to run once per client and keep its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from domain.events.event_log_cursor import EventLogCursor
from domain.events.feed_cursor import FeedCursor
from domain.events.feed_model import FeedFrame

SET_AUTHENTICATED_EXTENSION = "latchboard.set_authenticated"
"""In the ASGI scope: tells the limiter of connections whether this client has shown credentials."""
FRAME_WRITER_EXTENSION = "latchboard.frame_writer"
MESSAGE_TOO_LONG_KEY = "latchboard.too_long"
"""Set in a `websocket.receive` whose message exceeded the server's limit."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes buffered for one socket, in addition to the kernel's buffer. Beyond that, events wait in the queue as references."""
_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, _LENGTH_IN_64_BITS = b"\x81", 126, 127

AsgiSend = Callable[[dict[str, Any]], Awaitable[None]]


@lru_cache(maxsize=4_096)
def _cursor_bytes(log: EventLogCursor, store_time_s: int) -> bytes:
    return FeedCursor(log, store_time_s).encode().encode()


def text_frame(text: bytes) -> bytes:
    """One unmasked, final text frame (RFC 6455, 5.2)."""
    size = len(text)
    if size < _LENGTH_IN_16_BITS:
        return b"%b%c%b" % (_FINAL_TEXT_FRAME, size, text)
    if size < 1 << 16:
        return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, size.to_bytes(2, "big"), text)
    return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_64_BITS, size.to_bytes(8, "big"), text)


def event_json(head: bytes, log: EventLogCursor, store_time_s: int) -> bytes:
    """The event's JSON object with its cursor as the last member."""
    return b'%b,"cursor":"%b"}' % (head, _cursor_bytes(log, store_time_s))


class WebSocketFrameWriter:
    """Writes complete frames to the socket of a WebSocket connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._transport = writer.transport

    @property
    def is_buffer_full(self) -> bool:
        return self._transport.get_write_buffer_size() > MAX_BUFFERED_BYTES

    def write(self, data: bytes) -> None:
        """Write without waiting. Data written to a closing connection is lost."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until most of the buffer is sent. Raises ConnectionError if the client has disconnected."""
        await self._writer.drain()

    def abort(self) -> None:
        self._transport.abort()


class FeedSender:
    def __init__(self, send: AsgiSend, writer: WebSocketFrameWriter | None) -> None:
        self._send = send
        self._frame_writer = writer

    def try_send_event(self, frame: FeedFrame, log: EventLogCursor, store_time_s: int) -> bool:
        """Send an event without waiting. False if that is not possible; use `send_text` then."""
        writer = self._frame_writer
        if writer is None or writer.is_buffer_full:
            return False
        cursor = (log, store_time_s)
        if frame.websocket_frame_cursor != cursor:
            frame.websocket_frame = text_frame(event_json(frame.unclosed_json, log, store_time_s))
            frame.websocket_frame_cursor = cursor
        writer.write(frame.websocket_frame)
        return True

    async def send_text(self, text: bytes) -> None:
        """Send `text`, and wait while the buffer is full. Raises ConnectionError if the client has disconnected."""
        if self._frame_writer is None:
            await self._send({"type": "websocket.send", "text": text.decode()})
            return
        self._frame_writer.write(text_frame(text))
        if self._frame_writer.is_buffer_full:
            await self._frame_writer.drain()

    def abort(self) -> None:
        """Close the connection of a client that reads nothing any more, without a close frame."""
        if self._frame_writer is not None:
            self._frame_writer.abort()
