"""From nothing to serving and back: opened in order, stopped in the reverse one, within five seconds and without a loss.

Start: database and migrations, first account, the engine's memory, who may connect, the broker, the workers, and HTTP last, so
that nobody is answered by half a service. Stop: no new requests, no new messages; what was taken is made durable and acknowledged;
the workers finish what is in hand; the engine's values are written down; the database is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog
from hypercorn.asyncio import serve
from hypercorn.config import Config

from app.compose import Composition
from app.outside import StartRefused
from app.settings import Settings
from domain.telemetry.warmup import warm_up

BACKLOG = 1_024
REQUESTS_FINISH_S = 1.5
UPLINK_DRAINS_S = 1.0
STOP_WITHIN_S = 4.5
REQUESTS_PER_CONNECTION = 1_000_000
"""Hypercorn closes a connection after 1000 requests by default; a client that polls pays for a new one each time."""

log = structlog.get_logger("service")

Started = Callable[[Composition], Awaitable[None]]


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, before anything else is opened. Raises StartRefused that names the port and the variable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartRefused(
            f"The HTTP address {host}:{port} cannot be used: {error.strerror or error}. "
            "Free the port, or set LATCHBOARD_HTTP_PORT (or LATCHBOARD_HTTP_HOST) to another."
        ) from None
    return listener


async def run(settings: Settings, started: Started) -> int:
    """Serve until SIGTERM or SIGINT; `started` is called once everything runs. Returns the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = listen(settings.http_host, settings.http_port)
    try:
        service = Composition(settings)
        async with _opened(service):
            return await _serve(service, listener, stop, started)
    finally:
        with contextlib.suppress(OSError):
            listener.close()


@asynccontextmanager
async def _opened(service: Composition) -> AsyncIterator[None]:
    """Everything but HTTP runs within."""
    out = service.outside
    await out.database.start()
    try:
        replayed = await warm_up(service.engine, service.uow)
        admitted = await service.admission.admit_all()
        await out.link.start()
        service.health.broker_up = True
        log.info("opened", devices=admitted, replayed=replayed, engine=out.engine.name)
        service.supervisor.start()
        yield
    finally:
        await _close(service)


async def _serve(service: Composition, listener: socket.socket, stop: asyncio.Event, started: Started) -> int:
    async with asyncio.TaskGroup() as group:
        server = group.create_task(_http(service, listener, stop), name="http")
        lost = group.create_task(service.supervisor.lost.wait(), name="lost")
        service.health.phase = "running"
        _settle_memory()
        group.create_task(_report(service, started, stop), name="started")
        stopped = group.create_task(stop.wait(), name="stop")
        await asyncio.wait((server, lost, stopped), return_when=asyncio.FIRST_COMPLETED)
        asked = stop.is_set()
        service.health.phase = "stopping"
        log.info("stopping", asked=asked)
        stop.set()
        service.feed.stop()
        await _stop_taking(service)
        lost.cancel()
    return 0 if asked else 1


async def _report(service: Composition, started: Started, stop: asyncio.Event) -> None:
    try:
        await started(service)
    except Exception:
        log.exception("what should follow the start failed")
        stop.set()


async def _http(service: Composition, listener: socket.socket, stop: asyncio.Event) -> None:
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = REQUESTS_FINISH_S
    config.shutdown_timeout = REQUESTS_FINISH_S
    config.keep_alive_max_requests = REQUESTS_PER_CONNECTION
    config.keep_alive_timeout = 65
    config.include_date_header = False
    config.include_server_header = False
    config.h11_max_incomplete_size = 32 * 1024
    config.websocket_max_message_size = 64 * 1024
    listener.detach()  # the server closes it
    await serve(service.app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]  # its type names no awaitable


def _settle_memory() -> None:
    """What lives as long as the service is not looked at again by the collector: 10 to 25 % less CPU a request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _stop_taking(service: Composition) -> None:
    """No more from devices; what was taken is stored and acknowledged before the link lets go."""
    service.supervisor.expect_end()
    service.health.broker_up = False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            await service.outside.link.stop()
    uplink = next(watch.task for watch in service.supervisor.watches if watch.loop is service.uplink_loop)
    if uplink is not None:
        await asyncio.wait([uplink], timeout=UPLINK_DRAINS_S)


async def _close(service: Composition) -> None:
    """Also after a start that failed half way; each step is tried whatever the others did."""
    out = service.outside
    for step in (service.supervisor.stop, out.link.stop, _checkpoint_of(service), service.callers.flush_used,
                 service.courier.close, out.database.stop):  # fmt: skip
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await step()
        except Exception as error:
            log.warning("a step of stopping failed", step=getattr(step, "__qualname__", str(step)), error=repr(error))
    out.hasher.close()


def _checkpoint_of(service: Composition) -> Callable[[], Awaitable[None]]:
    async def checkpoint() -> None:
        if service.health.phase == "stopping":
            await service.checkpoint.write()

    return checkpoint
