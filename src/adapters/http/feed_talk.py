"""A WebSocket connection as its ASGI messages give it: what the client asked for, what it says, and a proper goodbye.

The goodbye is a handshake (RFC 6455, 7.1.1): the socket is closed after the client has answered. Closed before, with a word of
the client's still unread, the kernel would answer that with a reset, and what the client had not read yet, our close code
above all, would be lost with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from adapters.http.auth import Shown, shown_in
from adapters.http.feed_outlet import EXTENSION, TOO_LONG, Outlet, Send
from adapters.http.proxies import TrustedProxies
from domain.kernel.errors import Invalid
from domain.keys.policy import KEY_PREFIX

GOODBYE_WITHIN_S = 5.0
LONGEST_MESSAGE = 8_192
MOST_FIELDS = 32

Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Over:
    """How a connection ends: a WebSocket close code and a sentence of at most 123 bytes."""

    code: int
    reason: str


class Gone(Exception):
    """The client has left."""


class TooLong(Exception):
    """The client said more in one message than the server takes."""


class Talk:
    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._gone = False
        self.outlet = Outlet(send, scope.get("extensions", {}).get(EXTENSION))

    async def accept(self) -> None:
        await self._receive()  # websocket.connect
        await self._send({"type": "websocket.accept"})

    def args(self) -> dict[str, str]:
        """The query; of a name that is given twice, the first. Raises Invalid."""
        query = self._scope["query_string"].decode("ascii", "replace")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="replace", max_num_fields=MOST_FIELDS)
        except ValueError:
            raise Invalid.field("query", "has too many fields.") from None
        return dict(reversed(pairs))

    def headers(self, name: str) -> list[str]:
        wanted = name.lower().encode()
        return [value.decode("latin-1") for key, value in self._scope["headers"] if key.lower() == wanted]

    def shown(self) -> Shown:
        """Credentials in the query or a header."""
        token = self.args().get("token")
        if token:
            return as_shown(token)
        authorization, key = self.headers("authorization"), self.headers("x-api-key")
        return shown_in(authorization[0] if authorization else None, key[0] if key else None)

    def address(self, proxies: TrustedProxies | None) -> str:
        peer = (self._scope.get("client") or ("",))[0] or ""
        return peer if proxies is None else proxies.client(peer, self.headers(proxies.header))

    async def hear(self) -> dict[str, Any]:
        """The next message, {} for one that means nothing. Raises Gone, TooLong."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._gone = True
            raise Gone
        if message.get(TOO_LONG):
            raise TooLong
        return _read(message.get("text") or message.get("bytes") or "")

    async def close(self, over: Over) -> None:
        """Say goodbye and wait for the answer; whoever does not take or answer it in time is cut off."""
        if self._gone:
            return
        reason = over.reason.encode()[:120].decode(errors="ignore")
        with suppress(Gone, ConnectionError):
            try:
                async with asyncio.timeout(GOODBYE_WITHIN_S):
                    await self._send({"type": "websocket.close", "code": over.code, "reason": reason})
                    while True:
                        with suppress(TooLong):
                            await self.hear()
            except TimeoutError:
                self.outlet.abort()


def as_shown(text: str) -> Shown:
    return Shown(key=text) if text.startswith(KEY_PREFIX) else Shown(token=text)


def _read(raw: str | bytes) -> dict[str, Any]:
    if len(raw) > LONGEST_MESSAGE:
        return {}
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
