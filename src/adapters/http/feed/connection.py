"""A WebSocket connection on top of ASGI messages: query and credentials, received messages, sending, and the closing handshake.

Closing is a handshake (RFC 6455, 7.1.1): the socket is closed after the client has answered the close frame. If it were closed
earlier, with data of the client still unread, the kernel would send a reset, and the client would lose what it had not read yet,
above all the close code.

An event is the same sequence of bytes for all clients: its JSON, its cursor and the WebSocket frame are encoded once. If the
server provides its socket (`FRAME_WRITER_EXTENSION` in the ASGI scope), these bytes are written to it without waking a task;
otherwise the same text is sent through the server. Nothing is compressed: a compressor depends on what its client received
before, so it would have to run once per client and keep its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from adapters.http.core.callers import RequestCredentials, TrustedProxies, parse_credentials
from domain.events.cursors import EventLogCursor, FeedCursor
from domain.events.feed_model import FeedFrame
from domain.kernel.dataclasses import service
from domain.kernel.errors import ValidationFailed
from domain.keys.model import KEY_PREFIX

SET_AUTHENTICATED_EXTENSION = "latchboard.set_authenticated"
"""In the ASGI scope: tells the limiter of connections whether this client has shown credentials."""
FRAME_WRITER_EXTENSION = "latchboard.frame_writer"
MESSAGE_TOO_LONG_KEY = "latchboard.too_long"
"""Set in a `websocket.receive` whose message exceeded the server's limit."""
MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes buffered for one socket, in addition to the kernel's buffer. Beyond that, events wait in the queue as references."""
_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, _LENGTH_IN_64_BITS = b"\x81", 126, 127
CLOSE_HANDSHAKE_TIMEOUT_S = 5.0
MAX_MESSAGE_BYTES = 8_192
MAX_QUERY_PARAMETERS = 32
CROSS_SITE = 1008  # RFC 6455 7.4.1: policy violation

AsgiSend = Callable[[dict[str, Any]], Awaitable[None]]
AsgiReceive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class WebSocketCloseFrame:
    """A WebSocket close code and a reason of at most 123 bytes."""

    code: int
    reason: str


class FeedClientGoneError(Exception):
    """The client has disconnected."""


class WebSocketMessageTooLongError(Exception):
    """A message of the client exceeds the server's limit."""


class FeedClientConnection:
    def __init__(self, scope: dict[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._disconnected = False
        self._set_authenticated = scope.get("extensions", {}).get(SET_AUTHENTICATED_EXTENSION)
        self.sender = FeedSender(send=send, frame_writer=scope.get("extensions", {}).get(FRAME_WRITER_EXTENSION))

    async def accept(self) -> None:
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept"})

    async def refuse(self) -> None:
        """Instead of `accept`: the server answers the handshake with 403."""
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.close", "code": CROSS_SITE})

    def is_of_origin(self, others: Collection[str]) -> bool:
        """Whether no browser asks, or one for a page of this host or of the `others`. A WebSocket knows no same-origin policy:
        any page may open one, and it comes with what a proxy in front takes as proof, such as a cookie or an address."""
        hosts = [host.lower() for host in self.header_values("host")]
        found = self.header_values("origin")
        return all(origin in others or origin.partition("://")[2].lower() in hosts for origin in found)

    def set_authenticated(self, is_authenticated: bool) -> None:
        """A connection without credentials, or one that is being closed, may be closed at once to make room for another."""
        if self._set_authenticated is not None:
            self._set_authenticated(is_authenticated)

    def query_parameters(self) -> dict[str, str]:
        """The query parameters; of a repeated name, the first value. Raises ValidationFailed."""
        query = self._scope["query_string"].decode("ascii", "replace")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="replace", max_num_fields=MAX_QUERY_PARAMETERS)
        except ValueError:
            raise ValidationFailed.for_field("query", f"has more than {MAX_QUERY_PARAMETERS} parameters. Send fewer.") from None
        return dict(reversed(pairs))

    def header_values(self, name: str) -> list[str]:
        wanted = name.lower().encode()
        return [value.decode("latin-1") for key, value in self._scope["headers"] if key.lower() == wanted]

    def credentials(self) -> RequestCredentials:
        """The credentials in the query or a header."""
        token = self.query_parameters().get("token")
        if token:
            return credentials_from_token(token)
        authorization, key = self.header_values("authorization"), self.header_values("x-api-key")
        return parse_credentials(authorization[0] if authorization else None, key[0] if key else None)

    def client_address(self, proxies: TrustedProxies | None) -> str:
        peer = (self._scope.get("client") or ("",))[0] or ""
        return peer if proxies is None else proxies.client_address(peer, self.header_values(proxies.header))

    async def receive(self) -> dict[str, Any]:
        """The next message; {} if it is not a JSON object. Raises FeedClientGoneError, WebSocketMessageTooLongError."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._disconnected = True
            raise FeedClientGoneError
        if message.get(MESSAGE_TOO_LONG_KEY):
            raise WebSocketMessageTooLongError
        return _decode_message(message.get("text") or message.get("bytes") or "")

    async def close(self, close_reason: WebSocketCloseFrame) -> None:
        """Send the close frame and wait for the answer; abort the connection if there is none in time."""
        if self._disconnected:
            return
        reason = close_reason.reason.encode()[:120].decode(errors="ignore")
        with suppress(FeedClientGoneError, ConnectionError):
            try:
                async with asyncio.timeout(CLOSE_HANDSHAKE_TIMEOUT_S):
                    await self._send({"type": "websocket.close", "code": close_reason.code, "reason": reason})
                    while True:
                        with suppress(WebSocketMessageTooLongError):
                            await self.receive()
            except TimeoutError:
                self.sender.abort()


def credentials_from_token(text: str) -> RequestCredentials:
    return RequestCredentials(key=text) if text.startswith(KEY_PREFIX) else RequestCredentials(token=text)


def _decode_message(raw: str | bytes) -> dict[str, Any]:
    if len(raw) > MAX_MESSAGE_BYTES:
        return {}
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


@service
class FeedSender:
    send: AsgiSend
    frame_writer: WebSocketFrameWriter | None

    def try_send_event(self, frame: FeedFrame, log: EventLogCursor, store_time_s: int, life: str) -> bool:
        """Send an event without waiting. False if that is not possible; use `send_text` then."""
        writer = self.frame_writer
        if writer is None or writer.is_buffer_full:
            return False
        cursor = (log, store_time_s)
        if frame.websocket_frame_cursor != cursor:
            frame.websocket_frame = text_frame(event_json(frame.unclosed_json, log, store_time_s, life))
            frame.websocket_frame_cursor = cursor
        writer.write(frame.websocket_frame)
        return True

    async def send_text(self, text: bytes) -> None:
        """Send `text`, and wait while the buffer is full. Raises ConnectionError if the client has disconnected."""
        if self.frame_writer is None:
            await self.send({"type": "websocket.send", "text": text.decode()})
            return
        self.frame_writer.write(text_frame(text))
        if self.frame_writer.is_buffer_full:
            await self.frame_writer.drain()

    def abort(self) -> None:
        """Close the connection of a client that reads nothing any more, without a close frame."""
        if self.frame_writer is not None:
            self.frame_writer.abort()


@lru_cache(maxsize=4_096)
def _cursor_bytes(log: EventLogCursor, store_time_s: int, life: str) -> bytes:
    return FeedCursor(log, store_time_s, life).encode().encode()


def event_json(head: bytes, log: EventLogCursor, store_time_s: int, life: str) -> bytes:
    """The event's JSON object with its cursor as the last member."""
    return b'%b,"cursor":"%b"}' % (head, _cursor_bytes(log, store_time_s, life))


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


def text_frame(text: bytes) -> bytes:
    """One unmasked, final text frame (RFC 6455, 5.2)."""
    size = len(text)
    if size < _LENGTH_IN_16_BITS:
        return b"%b%c%b" % (_FINAL_TEXT_FRAME, size, text)
    if size < 1 << 16:
        return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_16_BITS, size.to_bytes(2, "big"), text)
    return b"%b%c%b%b" % (_FINAL_TEXT_FRAME, _LENGTH_IN_64_BITS, size.to_bytes(8, "big"), text)
