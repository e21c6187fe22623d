"""Counts Hypercorn's connections, lets the limiter close them, and closes those that are idle or that the client has left.

Hypercorn has no limit on connections. `patch_hypercorn` replaces its `TCPServer`, which serves one connection, by this one. The
limiter comes with the configuration, as `LimitedServerConfig.connections`; with another configuration nothing is limited.

Hypercorn also keeps a connection that the client has closed until the idle timeout, and starts and stops two tasks for this
timeout at each request. Here the connection closes at once, and has one task.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, Updated

from adapters.http.server.connection_limits import HttpConnectionLimiter, HttpConnectionPhase, TrackedHttpConnection


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
