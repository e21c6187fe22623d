"""Counts Hypercorn's connections, and lets the limiter close them.

Hypercorn has no limit on connections. `patch_hypercorn` replaces its `TCPServer`, which serves one connection, by this one. The
limiter comes with the configuration, as `ServerConfig.connections`; with another configuration nothing is limited.
"""

from __future__ import annotations

from typing import Any

import h11
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, Updated

from adapters.http.server.connection_limits import ConnectionState, HttpConnection, HttpConnectionLimiter


class ServerConfig(Config):
    connections: HttpConnectionLimiter | None = None


class LimitedTCPServer(TCPServer):
    _connection: HttpConnection | None = None
    _pending_writes = 0

    async def run(self) -> None:
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
        if isinstance(event, Updated) and self._limiter is not None and self._connection is not None:
            if event.idle:
                self._limiter.set_state(self._connection, ConnectionState.IDLE)
            else:
                self._limiter.record_request(self._connection)
        elif isinstance(event, Closed):
            self._note_failure()
        self._pending_writes += 1
        try:
            await super().protocol_send(event)
        finally:
            self._pending_writes -= 1

    async def _initiate_server_close(self) -> None:
        self._note_failure()
        await super()._initiate_server_close()

    def _note_failure(self) -> None:
        """The server closes the connection, and not the client. Without a request until now, that is a failure of its address."""
        if self._connection is not None and self._connection.state is ConnectionState.PENDING:
            self._connection.has_failed = True

    def set_authenticated(self, is_authenticated: bool) -> None:
        """For the live feed: whether the client has shown credentials, and the connection is not being closed."""
        if self._limiter is not None and self._connection is not None:
            state = ConnectionState.ACTIVE if is_authenticated else ConnectionState.PENDING
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
        return self.config.connections if isinstance(self.config, ServerConfig) else None
