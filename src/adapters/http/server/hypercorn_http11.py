"""HTTP/1.1 and WebSocket at the door, and nothing else.

Hypercorn also speaks HTTP/2 without TLS, to whoever begins with its preface or asks for an upgrade, and has no setting against
it. A connection that has changed over leaves the idle timeout behind and could be held open for nothing. Proxies speak HTTP/1.1
to what stands behind them, so here an upgrade is passed over, as RFC 9110 (7.8) allows, and another version is refused. So is a
target that names no path.

Hypercorn writes head, body and end of an answer one after the other, a system call and a wake-up each. Here the head waits for
what follows it at once anyway, and an end without bytes is not written: one write an answer.

A WebSocket's application is given the socket below it (`adapters.http.feed.frame_writer.Wire`), and compression is not agreed to,
whatever the client offers: frames that are the same for everybody cannot be compressed for each. Hypercorn stops reading a
chunk at the part that makes a message too long, and would miss a goodbye behind it in the same chunk; here the rest of such a
message is passed over, and the application is told.
"""

from __future__ import annotations

from typing import Any

import h11
import hypercorn.protocol
from hypercorn.events import Closed, RawData
from hypercorn.protocol import h11 as h11_protocol
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.ws_stream import FrameTooLargeError, WSStream
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping

from adapters.http.feed.frame_writer import FRAME_WRITER_EXTENSION, MESSAGE_TOO_LONG_KEY, FrameWriter

SUPPORTED_VERSIONS = (b"1.0", b"1.1")


def _origin_form(target: bytes) -> bytes | None:
    """Path and query, also of the absolute form that a proxy may send (RFC 9112, 3.2); None where no path is named."""
    if target.startswith(b"/"):
        return target
    scheme, _, rest = target.partition(b"://")
    at = rest.partition(b"?")[0].find(b"/")
    return rest[at:] if scheme.isalpha() and at >= 0 else None


class Http11OnlyProtocol(H11Protocol):
    _pending_head = b""

    async def _check_protocol(self, event: h11.Request) -> None:
        """Nothing is changed over to."""

    async def _create_stream(self, request: h11.Request) -> None:
        target = _origin_form(request.target)
        if target is not None and request.http_version in SUPPORTED_VERSIONS:
            if target is not request.target:
                request = h11.Request(
                    method=request.method, target=target, headers=request.headers, http_version=request.http_version
                )
            if any(name == b"upgrade" for name, _ in request.headers):
                wired: Any = _SocketScopeMiddleware(self.app, self.send)
                self.app = wired
                request = _without_extensions(request)
            await super()._create_stream(request)
            return
        await self._send_error_response(505 if request.http_version not in SUPPORTED_VERSIONS else 400)
        await self.send(Closed())

    async def _send_h11_event(self, event: Any) -> None:
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            self._pending_head = data or b""
            return
        data, self._pending_head = self._pending_head + (data or b""), b""
        if data:
            await self.send(RawData(data=data))


class DrainingWebSocketStream(WSStream):
    _is_discarding = False

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, Message):
                await self._on_message_part(event)
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                if self.connection.state == ConnectionState.REMOTE_CLOSING:
                    await self._send_wsproto_event(event.response())
                await self.send(StreamClosed(stream_id=self.stream_id))

    async def _on_message_part(self, part: Message[Any]) -> None:
        put: Any = self.app_put
        if not self._is_discarding:
            try:
                self.buffer.extend(part)
            except FrameTooLargeError:
                self._is_discarding = True
                self.buffer.clear()
                await put({"type": "websocket.receive", "text": "", "bytes": None, MESSAGE_TOO_LONG_KEY: True})
            else:
                if part.message_finished:
                    await put(self.buffer.to_message())
        if part.message_finished:
            self._is_discarding = False
            self.buffer.clear()


class _SocketScopeMiddleware:
    """Hypercorn's application, which finds the connection's socket in its scope."""

    def __init__(self, app: Any, send: Any) -> None:
        self._app = app
        self._server = getattr(send, "__self__", None)

    async def __call__(self, scope: Any, *others: Any) -> None:
        if scope["type"] == "websocket" and self._server is not None:
            scope["extensions"][FRAME_WRITER_EXTENSION] = FrameWriter(self._server.writer)
        await self._app(scope, *others)


def _without_extensions(request: h11.Request) -> h11.Request:
    kept = [(name, value) for name, value in request.headers if name != b"sec-websocket-extensions"]
    return h11.Request(method=request.method, target=request.target, headers=kept, http_version=request.http_version)


def patch_hypercorn() -> None:
    """For every connection that Hypercorn takes from now on in this process."""
    protocol: Any = hypercorn.protocol
    protocol.H11Protocol = Http11OnlyProtocol
    streams: Any = h11_protocol
    streams.WSStream = DrainingWebSocketStream
