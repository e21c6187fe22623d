"""Limits Hypercorn's connections and restricts it to HTTP/1.1 and WebSocket, by replacing three of its classes.

Hypercorn has no setting for any of this, so `patch_hypercorn` replaces `H11Protocol`, `WSStream` and `TCPServer`. They may change
with any minor release: `pyproject.toml` pins Hypercorn below the next one, and `patch_hypercorn` checks at start that everything
it overrides or calls is still there.

- Connections are counted, and the limiter may close them. It comes with the configuration, as `LimitedServerConfig.connections`;
  with another configuration nothing is limited.
- A connection that the client has closed closes at once, and has one task. Hypercorn keeps it until the idle timeout, and starts
  and stops two tasks for this timeout at each request.
- No HTTP/2 without TLS. Hypercorn switches for any client that sends the HTTP/2 preface or asks for an upgrade to h2c; such a
  connection has no idle timeout and can be held open for free. Proxies speak HTTP/1.1 to their backends, so an upgrade to
  HTTP/2 is ignored (allowed by RFC 9110, 7.8), and other versions are refused, as is a target without a path.
- A request with both `Content-Length` and `Transfer-Encoding` gets 400, and its connection is closed. A proxy may have believed
  the other one and taken a part of the body for the next request (RFC 9112, 6.1).
- One write per response. Hypercorn writes head, body and end separately, each with a system call and a task switch. Here the
  head is held back until the part that follows it, and an end without bytes is not written.
- No WebSocket compression, whatever the client offers: a frame that is the same for all clients cannot be compressed for each.
  The application gets the socket itself (`adapters.http.feed.connection.WebSocketFrameWriter`) in its ASGI scope.
- A WebSocket message that is too long is skipped and reported to the application. Hypercorn stops reading the chunk at that
  point and would miss a close frame behind it.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import h11
import hypercorn.asyncio.run
import hypercorn.protocol
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import h11 as h11_protocol
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.ws_stream import FrameTooLargeError, WSStream
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping

from adapters.http.feed.connection import (
    FRAME_WRITER_EXTENSION,
    MESSAGE_TOO_LONG_KEY,
    SET_AUTHENTICATED_EXTENSION,
    WebSocketFrameWriter,
)
from adapters.http.server.limits import HttpConnectionLimiter, HttpConnectionPhase, TrackedHttpConnection


class LimitedServerConfig(Config):
    connections: HttpConnectionLimiter | None = None


class HypercornConnectionWithLimiter(TCPServer):
    _connection: TrackedHttpConnection | None = None
    _pending_writes = 0
    _idle_since: float | None = None
    """Time of the loop; None during a request or a WebSocket."""
    _is_watched = False

    async def run(self) -> None:
        self._idle_since = self.loop.time()
        limiter = self._limiter
        if limiter is None:
            await super().run()
            return
        peer = self.writer.get_extra_info("peername")
        connection = self._connection = limiter.open(peer[0] if peer else "", self)
        if connection is None:
            self.abort()
            return
        try:
            await super().run()
        finally:
            limiter.close(connection)

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            await self._set_idle(event.idle)
            return
        if isinstance(event, Closed):
            self._note_failure()
        self._pending_writes += 1
        try:
            await super().protocol_send(event)
        finally:
            self._pending_writes -= 1

    async def _set_idle(self, is_idle: bool) -> None:
        self._idle_since = self.loop.time() if is_idle else None
        if is_idle and not self._is_watched:
            await self.idle_task.restart(self._task_group, self._idle_timeout)
        if self._limiter is None or self._connection is None:
            return
        if is_idle:
            self._limiter.set_state(self._connection, HttpConnectionPhase.IDLE)
        else:
            self._limiter.record_request(self._connection)

    async def _idle_timeout(self) -> None:
        """Close the connection after the timeout, or when the server stops. Ends early if a request outlasts the timeout."""
        self._is_watched = True
        try:
            while self._idle_since is not None:
                until = self._idle_since + self.config.keep_alive_timeout
                if until <= self.loop.time() or await self._is_terminated_before(until):
                    break
        finally:
            self._is_watched = False
        if self._idle_since is not None:
            await asyncio.shield(self._initiate_server_close())

    async def _is_terminated_before(self, until: float) -> bool:
        try:
            async with asyncio.timeout_at(until):
                await self.context.terminated.wait()
        except TimeoutError:
            return False
        return True

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()  # the client has closed the connection

    async def _initiate_server_close(self) -> None:
        self._note_failure()
        await super()._initiate_server_close()

    def _note_failure(self) -> None:
        """The server closes the connection, and not the client. Without a request until now, that is a failure of its address."""
        if self._connection is not None and self._connection.state is HttpConnectionPhase.PENDING:
            self._connection.has_failed = True

    def set_authenticated(self, is_authenticated: bool) -> None:
        """For the live feed: whether the client has shown credentials, and the connection is not being closed."""
        if self._limiter is not None and self._connection is not None:
            state = HttpConnectionPhase.ACTIVE if is_authenticated else HttpConnectionPhase.PENDING
            self._limiter.set_state(self._connection, state)

    def abort(self) -> None:
        self.writer.transport.abort()

    def waits_for_client(self) -> bool:
        if self._pending_writes:
            return True
        http: Any = getattr(getattr(self, "protocol", None), "protocol", None)
        return getattr(getattr(http, "connection", None), "their_state", None) is h11.SEND_BODY

    @property
    def _limiter(self) -> HttpConnectionLimiter | None:
        return self.config.connections if isinstance(self.config, LimitedServerConfig) else None


SUPPORTED_VERSIONS = (b"1.0", b"1.1")
_REQUIRED_MEMBERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (hypercorn.protocol, ("H11Protocol",)),
    (h11_protocol, ("WSStream",)),
    (H11Protocol, ("_check_protocol", "_create_stream", "_send_h11_event", "_send_error_response")),
    (WSStream, ("_handle_events", "_send_wsproto_event")),
    (hypercorn.asyncio.run, ("TCPServer",)),
    (TCPServer, ("run", "protocol_send", "_initiate_server_close", "_idle_timeout", "_read_data")),
)
"""What this module replaces, overrides or calls."""


class UnsupportedHypercornError(Exception):
    """The installed Hypercorn lacks something that this module replaces."""


def _origin_form(target: bytes) -> bytes | None:
    """Path and query of a request target, which a proxy may send in absolute form (RFC 9112, 3.2). None without a path."""
    if target.startswith(b"/"):
        return target
    scheme, _, rest = target.partition(b"://")
    at = rest.partition(b"?")[0].find(b"/")
    return rest[at:] if scheme.isalpha() and at >= 0 else None


def _has_two_lengths(request: h11.Request) -> bool:
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}


class HardenedH11Protocol(H11Protocol):
    _pending_head = b""

    async def _check_protocol(self, event: h11.Request) -> None:
        """Never switch to HTTP/2."""

    async def _create_stream(self, request: h11.Request) -> None:
        target = _origin_form(request.target)
        if target is not None and request.http_version in SUPPORTED_VERSIONS and not _has_two_lengths(request):
            if target is not request.target:
                request = h11.Request(
                    method=request.method, target=target, headers=request.headers, http_version=request.http_version
                )
            if any(name == b"upgrade" for name, _ in request.headers):
                app: Any = _FrameWriterScopeMiddleware(self.app, self.send)
                self.app = app
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


class WebSocketStream(WSStream):
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


class _FrameWriterScopeMiddleware:
    """Adds the connection's socket to the ASGI scope of a WebSocket."""

    def __init__(self, app: Any, send: Any) -> None:
        self._app = app
        self._server = getattr(send, "__self__", None)

    async def __call__(self, scope: Any, *others: Any) -> None:
        if scope["type"] == "websocket" and self._server is not None:
            scope["extensions"][FRAME_WRITER_EXTENSION] = WebSocketFrameWriter(self._server.writer)
            if isinstance(self._server, HypercornConnectionWithLimiter):
                self._server.set_authenticated(False)
                scope["extensions"][SET_AUTHENTICATED_EXTENSION] = self._server.set_authenticated
        await self._app(scope, *others)


def _without_extensions(request: h11.Request) -> h11.Request:
    kept = [(name, value) for name, value in request.headers if name != b"sec-websocket-extensions"]
    return h11.Request(method=request.method, target=request.target, headers=kept, http_version=request.http_version)


def patch_hypercorn() -> None:
    """Replace Hypercorn's classes for every connection accepted from now on. Raises UnsupportedHypercornError."""
    missing = [f"{owner.__name__}.{name}" for owner, names in _REQUIRED_MEMBERS for name in names if not hasattr(owner, name)]
    if missing:
        raise UnsupportedHypercornError(
            f"Hypercorn {version('hypercorn')} has no {', '.join(missing)}. Install the version that requirements.lock names."
        )
    protocol: Any = hypercorn.protocol
    protocol.H11Protocol = HardenedH11Protocol
    streams: Any = h11_protocol
    streams.WSStream = WebSocketStream
    runner: Any = hypercorn.asyncio.run
    runner.TCPServer = HypercornConnectionWithLimiter
