"""The sockets and the configuration of the HTTP server."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence

from hypercorn.config import Sockets

from adapters.http.server.hypercorn import LimitedServerConfig
from adapters.http.server.limits import HttpConnectionLimiter
from app.config.settings import Settings
from app.runtime.processes import WorkerProcessContext
from app.runtime.start import PortInUseError

HTTP_GRACEFUL_TIMEOUT_S = 1.0
LISTEN_BACKLOG = 1_024
ACCEPT_BATCH = 32
"""asyncio accepts this many connections in one turn of the loop, before the limiter sees the first of them."""


def bind_http_sockets(settings: Settings, worker: WorkerProcessContext | None) -> list[socket.socket]:
    """The listening socket of the service; then, for a worker process, the one that it has alone. Raises PortInUseError."""
    listeners = [_bind(settings.http_host, settings.http_port, is_shared=worker is not None)]
    if worker is not None and settings.worker_port is not None:
        try:
            listeners.append(
                _bind(settings.http_host, settings.worker_port + worker.number - 1, setting="LATCHBOARD_WORKER_PORT")
            )
        except PortInUseError:
            listeners[0].close()
            raise
    for listener in listeners:
        listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
    return listeners


@contextlib.contextmanager
def reserve_port(host: str, port: int) -> Iterator[None]:
    """Keep the port for the worker processes of this one. Raises PortInUseError, also when another program shares it."""
    with _bind(host, port) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # after `bind`, which therefore has found nobody there
        yield


def _bind(host: str, port: int, *, is_shared: bool = False, setting: str = "LATCHBOARD_HTTP_PORT") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # the kernel spreads the connections over the processes
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortInUseError(
            f"Cannot listen on {host}:{port} for HTTP: {error.strerror}. "
            f"Stop the program that uses it, or set {setting} (and LATCHBOARD_HTTP_HOST) to another address."
        ) from None
    return listener


def hypercorn_config(listeners: Sequence[socket.socket], connections: HttpConnectionLimiter) -> LimitedServerConfig:
    config = LimitedServerConfig()
    config.connections = connections
    config.backlog = ACCEPT_BATCH
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.graceful_timeout = HTTP_GRACEFUL_TIMEOUT_S
    config.keep_alive_timeout = 30.0
    config.keep_alive_max_requests = 1_000_000
    config.include_date_header = False
    config.include_server_header = False
    config.websocket_ping_interval = 20.0
    config.websocket_max_message_size = 64 * 1024
    config.h11_max_incomplete_size = 32 * 1024
    config.create_sockets = lambda: Sockets([], list(listeners), [])  # type: ignore[method-assign]
    return config
