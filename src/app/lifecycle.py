"""From nothing to ready, and back, in that order: database, engine, devices' logins, broker, workers, HTTP. Then the reverse.

SIGTERM and SIGINT: no more requests, what is in hand is finished, everything that changed since the last checkpoint is written,
within five seconds. A second signal ends the program at once.
"""

from __future__ import annotations

import asyncio
import gc
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

from app import http11
from app.compose import Program
from app.loops.standby import StandbyLoop
from app.refused import StartRefused
from app.running import GC_THRESHOLDS
from app.settings import SettingsError
from domain.kernel.errors import Unavailable
from domain.telemetry.warmup import warm_up

HTTP_GRACE_S = 1.0
SAME_WISH_S = 0.5
STOP_WITHIN_S = 3.5

log = structlog.get_logger("lifecycle")

Prepare = Callable[[Program], Awaitable[None]]
Started = Callable[[Program, int], Awaitable[None]]


class PortTaken(Exception):
    """The message says which port, and which variable chooses another."""


async def run(program: Program, prepare: Prepare, started: Started) -> None:
    """Serve until a signal. `prepare` is called when the database is open and nobody is served yet, `started` with the HTTP port
    once the service is ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    on_signal = _Signals(stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    loop.set_exception_handler(_on_failure)
    _allow_many_files()
    listener = _listen(program.settings.http_host, program.settings.http_port)
    began = time.perf_counter()
    ready = False
    try:
        await start(program, prepare)
        server = asyncio.create_task(_serve(program, listener, stop), name="http")
        _settle_memory()
        log.info("ready", seconds=round(time.perf_counter() - began, 2))
        ready = True
        await started(program, listener.getsockname()[1])
        await server
        _only_as_asked(program, stop)
    finally:
        seconds = await _stop(program)
        listener.close()
        if ready:
            log.info("stopped", seconds=seconds)


async def start(program: Program, prepare: Prepare) -> None:
    """Raises DatabaseUnusable, Unavailable (broker), and what the storage raises."""
    outside = program.outside
    outside.claim.take()
    await outside.database.start()
    await prepare(program)
    loops, herald = program.loops, program.loops.herald
    if loops.log is not None and herald is not None:
        await herald.open()
        await loops.log.look()
    if outside.standby is None or herald is None:
        replayed = await _open_devices(program)
        program.supervisor.start()
    elif herald.claimed.is_set():
        program.supervisor.start()
        replayed = await take_over(program)
    else:
        replayed = await _warm_up(program)
        program.supervisor.start()
        program.supervisor.add([StandbyLoop(herald.claimed, lambda: take_over(program))])
        log.warning("another instance holds the devices; this one serves people, and takes them over when the other is gone")
    log.info("started", replayed=replayed, engine=outside.engine.name)


async def _open_devices(program: Program) -> int:
    """The engine brought up to date, then whoever may connect told to the link, then the link opened."""
    outside, services = program.outside, program.services
    replayed = await _warm_up(program)
    await services.admission.admit_all()
    if services.admission.unreadable:
        log.warning(
            "devices cannot connect: their passwords were sealed with keys that are not in the ring. Restore secret_keys, or "
            "generate their credentials anew",
            devices=services.admission.unreadable,
        )
    await program.loops.watching.look()
    await outside.link.start()
    return replayed


async def _warm_up(program: Program) -> int:
    done = await warm_up(program.outside.engine.engine, program.services.uow)
    if done.unreadable:
        log.error(
            "readings of devices are spoiled in the database and were passed over; their last values may be old until they "
            "report again. Look after the disk, and restore a backup if more is missing",
            devices=len(done.unreadable),
            device_numbers=sorted(done.unreadable)[:20],
        )
    return done.replayed


async def take_over(program: Program) -> int:
    """The devices are ours from now on, whether the one who held them before said goodbye or not."""
    outside = program.outside
    if outside.standby is not None:
        outside.standby.take_over()
    async with program.services.turnstile:
        replayed = await _open_devices(program)
    program.supervisor.add(program.loops.taken_over())
    log.info("the devices are let in", replayed=replayed)
    return replayed


async def _stop(program: Program) -> float:
    """The seconds it took. Also after a start that failed half way; each step is tried whatever became of the others."""
    outside = program.outside
    outside.feed.stop()
    began = time.perf_counter()
    for step in (
        program.supervisor.stop,
        outside.link.stop,
        lambda: _last_writes(program),
        outside.courier.close,
        lambda: _let_go(program),
        outside.database.stop,
    ):
        left_s = max(0.2, STOP_WITHIN_S - (time.perf_counter() - began))
        try:
            async with asyncio.timeout(left_s):
                await step()
        except Exception:
            log.exception("a step of stopping failed; the next start makes up for what was not written")
    outside.hasher.close()
    outside.claim.drop()
    return round(time.perf_counter() - began, 2)


async def _let_go(program: Program) -> None:
    """Last of all: until here the devices, and what they said last, were this instance's."""
    if program.loops.herald is not None:
        await program.loops.herald.close()


async def _last_writes(program: Program) -> None:
    try:
        if program.outside.holds_devices:
            await program.loops.checkpoint.write()
        await program.services.callers.flush_used()
        await program.services.sessions.flush_hasty()
        await program.services.refusals.flush(everything=True)
    except Unavailable as error:
        log.warning("the last checkpoint could not be written; the next start replays", error=str(error))


def http_config(listener: socket.socket) -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.graceful_timeout = HTTP_GRACE_S
    config.keep_alive_timeout = 30.0
    config.keep_alive_max_requests = 1_000_000
    config.include_date_header = False
    config.include_server_header = False
    config.websocket_ping_interval = 20.0
    config.websocket_max_message_size = 64 * 1024
    config.h11_max_incomplete_size = 32 * 1024
    config.create_sockets = lambda: Sockets([], [listener], [])  # type: ignore[method-assign]
    return config


async def _serve(program: Program, listener: socket.socket, stop: asyncio.Event) -> None:
    async def shut_down() -> None:
        await _first_of(stop, program.supervisor.given_up)
        program.outside.feed.stop()

    http11.install()
    await hypercorn_serve(program.http, http_config(listener), shutdown_trigger=shut_down, mode="asgi")


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _only_as_asked(program: Program, stop: asyncio.Event) -> None:
    """Raises Unavailable when the service has ended otherwise than by a signal."""
    if program.supervisor.given_up.is_set():
        ailing = "; ".join(f"{worker}: {trouble}" for worker, trouble in program.supervisor.troubles().items())
        raise Unavailable(f"A worker failed again and again, so the service ended ({ailing}). The log says more; start it anew.")
    if not stop.is_set():
        raise Unavailable("The HTTP server ended by itself. The log says why; start the service anew.")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"{host}:{port} cannot be listened on for HTTP ({error.strerror}). "
            "Stop what uses it, or set LATCHBOARD_HTTP_PORT (and LATCHBOARD_HTTP_HOST) to another address."
        ) from None
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def _allow_many_files() -> None:
    """Each device is an open file; the soft limit is often 1024 where the hard one is a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _settle_memory() -> None:
    """What the start made stays; looking through it at each collection costs 10 to 25 percent of the request rate."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class _Signals:
    """The first one stops in good order. A later one ends at once; what comes with the first is the same wish told twice (a shell
    and `timeout` both signal the process and its group)."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._first_at = 0.0

    def __call__(self) -> None:
        if not self._stop.is_set():
            self._first_at = time.monotonic()
            self._stop.set()
        elif time.monotonic() - self._first_at > SAME_WISH_S:
            os._exit(1)  # no farewell: what was acknowledged is durable, and threads of the database would hold a plain exit up


def _on_failure(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Python 3.11's streams report a connection that a stop cancelled as a failed callback; 3.12 no longer does."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


def refusal(error: BaseException) -> str | None:
    """What to tell whoever tried to start, when the error is one of ours."""
    if isinstance(error, SettingsError | StartRefused | PortTaken):
        return str(error)
    if isinstance(error, Unavailable):
        return error.message
    return None
