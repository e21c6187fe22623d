"""Sends events and other messages to one feed client.

An event is the same sequence of bytes for all clients: its JSON, its cursor and the WebSocket frame are encoded once. If the
server provides its socket (`FRAME_WRITER_EXTENSION` in the ASGI scope), these bytes are written to it without waking a task;
otherwise the same text is sent through the server. Nothing is compressed: a compressor depends on what its client received
before, so it would have to run once per client and keep its state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from adapters.http.feed.frame_writer import WebSocketFrameWriter, text_frame
from domain.events.cursors import EventLogCursor, FeedCursor
from domain.events.feed_model import FeedFrame

AsgiSend = Callable[[dict[str, Any]], Awaitable[None]]


@lru_cache(maxsize=4_096)
def _cursor_bytes(log: EventLogCursor, store_time_s: int) -> bytes:
    return FeedCursor(log, store_time_s).encode().encode()


def event_json(head: bytes, log: EventLogCursor, store_time_s: int) -> bytes:
    """The event's JSON object with its cursor as the last member."""
    return b'%b,"cursor":"%b"}' % (head, _cursor_bytes(log, store_time_s))


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
