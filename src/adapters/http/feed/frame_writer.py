"""Writes complete WebSocket frames directly to the socket of a connection, without waking a task."""

from __future__ import annotations

import asyncio

SET_AUTHENTICATED_EXTENSION = "latchboard.set_authenticated"
"""In the ASGI scope: tells the limiter of connections whether this client has shown credentials."""
FRAME_WRITER_EXTENSION = "latchboard.frame_writer"
MESSAGE_TOO_LONG_KEY = "latchboard.too_long"
"""Set in a `websocket.receive` whose message exceeded the server's limit."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes buffered for one socket, in addition to the kernel's buffer. Beyond that, events wait in the queue as references."""
_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, _LENGTH_IN_64_BITS = b"\x81", 126, 127


def text_frame(text: bytes) -> bytes:
    """One unmasked, final text frame (RFC 6455, 5.2)."""
    size = len(text)
    if size < _LENGTH_IN_16_BITS:
        return b"%b%c%b" % (_FINAL_TEXT_FRAME, size, text)
    if size < 1 << 16:
        return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, size.to_bytes(2, "big"), text)
    return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_64_BITS, size.to_bytes(8, "big"), text)


class WebSocketFrameWriter:
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
