"""From nothing to ready, and back, in that order: database, engine, devices' logins, broker, workers, HTTP. Then the reverse.

SIGTERM and SIGINT: no more requests, what is in hand is finished, everything that changed since the last checkpoint is written,
within five seconds. A second signal ends the program at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Awaitable, Callable

import structlog
from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config, Sockets

from adapters.http.server import hypercorn_http11
from app.runtime import garbage_collector
from app.runtime.errors import PortInUseError
from app.wiring.program import Program
from app.workers.standby import StandbyWorker
from domain.ingest.restore import restore_engine
from domain.kernel.errors import Unavailable

HTTP_GRACEFUL_TIMEOUT_S = 1.0
DUPLICATE_SIGNAL_S = 0.5
STOP_TIMEOUT_S = 3.5

log = structlog.get_logger("lifecycle")

PrepareHook = Callable[[Program], Awaitable[None]]
StartedHook = Callable[[Program, int], Awaitable[None]]


async def run(program: Program, prepare: PrepareHook, started: StartedHook) -> None:
    """Serve until a signal. `prepare` is called when the database is open and nobody is served yet, `started` with the HTTP port
    once the service is ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    on_signal = _SignalHandler(stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    loop.set_exception_handler(_on_loop_exception)
    _raise_open_file_limit()
    hypercorn_http11.patch_hypercorn()
    listener = _bind_http_socket(program.settings.http_host, program.settings.http_port)
    began = time.perf_counter()
    ready = False
    try:
        await start(program, prepare)
        server = asyncio.create_task(_serve_http(program, listener, stop), name="http")
        garbage_collector.freeze()
        log.info("ready", seconds=round(time.perf_counter() - began, 2))
        ready = True
        await started(program, listener.getsockname()[1])
        await server
        _raise_if_unexpected_exit(program, stop)
    finally:
        seconds = await _stop(program)
        listener.close()
        if ready:
            log.info("stopped", seconds=seconds)


async def start(program: Program, prepare: PrepareHook) -> None:
    """Raises DatabaseUnusableError, Unavailable (broker), and what the storage raises."""
    adapters = program.adapters
    adapters.instance_lock.acquire()
    await adapters.database.start()
    await prepare(program)
    workers, herald = program.workers, program.workers.postgres_listener
    if workers.log_follower is not None and herald is not None:
        await herald.open()
        await workers.log_follower.seek_to_end()
    if adapters.standby_link is None or herald is None or herald.leader_lock is None:
        replayed = await _open_device_link(program)
        program.supervisor.start()
    elif herald.leader_lock.acquired.is_set():
        program.supervisor.start()
        replayed = await become_leader(program)
    else:
        replayed = await _restore_engine(program)
        program.supervisor.start()
        program.supervisor.add([StandbyWorker(herald.leader_lock.acquired, lambda: become_leader(program))])
        log.warning("another instance holds the devices; this one serves people, and takes them over when the other is gone")
    log.info("started", replayed=replayed, engine=adapters.engine.name)


async def _open_device_link(program: Program) -> int:
    """The engine brought up to date, then whoever may connect told to the link, then the link opened."""
    adapters, services = program.adapters, program.services
    replayed = await _restore_engine(program)
    await services.credential_sync.sync_all()
    if services.credential_sync.unreadable_count:
        log.warning(
            "devices cannot connect: their passwords were sealed with keys that are not in the ring. Restore secret_keys, or "
            "generate their credentials anew",
            devices=services.credential_sync.unreadable_count,
        )
    await program.workers.feed_interest.refresh()
    await adapters.link.start()
    return replayed


async def _restore_engine(program: Program) -> int:
    done = await restore_engine(program.adapters.engine.engine, program.services.uow)
    if done.unreadable_devices:
        log.error(
            "readings of devices are spoiled in the database and were passed over; their last values may be old until they "
            "report again. Look after the disk, and restore a backup if more is missing",
            devices=len(done.unreadable_devices),
            device_numbers=sorted(done.unreadable_devices)[:20],
        )
    return done.replayed_rows


async def become_leader(program: Program) -> int:
    """The devices are ours from now on, whether the one who held them before said goodbye or not."""
    adapters = program.adapters
    if adapters.standby_link is not None:
        adapters.standby_link.activate()
    async with program.services.engine_commit_lock:
        replayed = await _open_device_link(program)
    program.supervisor.add(program.workers.start_on_leadership())
    log.info("the devices are let in", replayed=replayed)
    return replayed


async def _stop(program: Program) -> float:
    """The seconds it took. Also after a start that failed half way; each step is tried whatever became of the others."""
    adapters = program.adapters
    adapters.feed.stop()
    began = time.perf_counter()
    for step in (
        program.supervisor.stop,
        adapters.link.stop,
        lambda: _flush_pending_writes(program),
        adapters.courier.close,
        lambda: _release_leadership(program),
        adapters.database.stop,
    ):
        left_s = max(0.2, STOP_TIMEOUT_S - (time.perf_counter() - began))
        try:
            async with asyncio.timeout(left_s):
                await step()
        except Exception:
            log.exception("a step of stopping failed; the next start makes up for what was not written")
    adapters.hasher.close()
    adapters.instance_lock.release()
    return round(time.perf_counter() - began, 2)


async def _release_leadership(program: Program) -> None:
    """Last of all: until here the devices, and what they said last, were this instance's."""
    if program.workers.postgres_listener is not None:
        await program.workers.postgres_listener.close()


async def _flush_pending_writes(program: Program) -> None:
    try:
        if program.adapters.is_leader:
            await program.workers.checkpoint.write()
        await program.services.callers.flush_last_used()
        await program.services.sessions.flush_throttled_logins()
        await program.services.denial_log.flush(everything=True)
    except Unavailable as error:
        log.warning("the last checkpoint could not be written; the next start replays", error=str(error))


def hypercorn_config(listener: socket.socket) -> Config:
    config = Config()
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
    config.create_sockets = lambda: Sockets([], [listener], [])  # type: ignore[method-assign]
    return config


async def _serve_http(program: Program, listener: socket.socket, stop: asyncio.Event) -> None:
    async def shut_down() -> None:
        await _wait_for_any(stop, program.supervisor.shutdown_requested)
        program.adapters.feed.stop()

    await hypercorn_serve(program.http_app, hypercorn_config(listener), shutdown_trigger=shut_down, mode="asgi")


async def _wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _raise_if_unexpected_exit(program: Program, stop: asyncio.Event) -> None:
    """Raises Unavailable when the service has ended otherwise than by a signal."""
    if program.supervisor.shutdown_requested.is_set():
        ailing = "; ".join(f"{worker}: {trouble}" for worker, trouble in program.supervisor.current_errors().items())
        raise Unavailable(f"A worker failed again and again, so the service ended ({ailing}). The log says more; start it anew.")
    if not stop.is_set():
        raise Unavailable("The HTTP server ended by itself. The log says why; start the service anew.")


def _bind_http_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortInUseError(
            f"{host}:{port} cannot be listened on for HTTP ({error.strerror}). "
            "Stop what uses it, or set LATCHBOARD_HTTP_PORT (and LATCHBOARD_HTTP_HOST) to another address."
        ) from None
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def _raise_open_file_limit() -> None:
    """Each device is an open file; the soft limit is often 1024 where the hard one is a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _SignalHandler:
    """The first one stops in good order. A later one ends at once; what comes with the first is the same wish told twice (a shell
    and `timeout` both signal the process and its group)."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._first_signal_at = 0.0

    def __call__(self) -> None:
        if not self._stop.is_set():
            self._first_signal_at = time.monotonic()
            self._stop.set()
        elif time.monotonic() - self._first_signal_at > DUPLICATE_SIGNAL_S:
            os._exit(1)  # no farewell: what was acknowledged is durable, and threads of the database would hold a plain exit up


def _on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Python 3.11's streams report a connection that a stop cancelled as a failed callback; 3.12 no longer does."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)
