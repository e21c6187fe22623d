"""A WebSocket connection on top of ASGI messages: query and credentials, received messages, and the closing handshake.

Closing is a handshake (RFC 6455, 7.1.1): the socket is closed after the client has answered the close frame. If it were closed
earlier, with data of the client still unread, the kernel would send a reset, and the client would lose what it had not read yet,
above all the close code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from adapters.http.core.caller_authentication import RequestCredentials, parse_credentials
from adapters.http.core.trusted_proxies import TrustedProxies
from adapters.http.feed.feed_sender import AsgiSend, FeedSender
from adapters.http.feed.frame_writer import FRAME_WRITER_EXTENSION, MESSAGE_TOO_LONG_KEY, SET_AUTHENTICATED_EXTENSION
from domain.kernel.errors import ValidationFailed
from domain.keys.model import KEY_PREFIX

CLOSE_HANDSHAKE_TIMEOUT_S = 5.0
MAX_MESSAGE_BYTES = 8_192
MAX_QUERY_PARAMETERS = 32

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
        self.sender = FeedSender(send, scope.get("extensions", {}).get(FRAME_WRITER_EXTENSION))

    async def accept(self) -> None:
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept"})

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
