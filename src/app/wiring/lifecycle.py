"""Starts the parts in order (database, engine, device credentials, broker, workers, HTTP) and stops them in the reverse order.

On SIGTERM or SIGINT the service accepts no more requests, finishes the requests in flight, and writes all changes since the last
checkpoint, within five seconds. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import structlog
from hypercorn.asyncio import serve as hypercorn_serve

from adapters.http.server import hypercorn
from app.runtime import interpreter
from app.runtime.start import require_database
from app.wiring.http_listeners import LISTEN_BACKLOG, bind_http_sockets, hypercorn_config
from app.wiring.program import ComposedApplication
from app.workers.due import WakeEvent
from app.workers.instances import DatabaseLifeWorker, StandbyTakeoverWorker
from domain.ingest.restore import restore_engine
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.partitions.ports import ConnectedDevices
from domain.schedules.recovery import WHAT_HAPPENED

if TYPE_CHECKING:
    from adapters.stream.unix_bus import UnixSocketFeedBus

DUPLICATE_SIGNAL_S = 0.5
STOP_TIMEOUT_S = 3.5
PEER_POLL_S = 0.1
"""Between two looks at the database for an instance that hears devices."""

log = structlog.get_logger("lifecycle")

PrepareHook = Callable[[ComposedApplication], Awaitable[None]]
StartedHook = Callable[[ComposedApplication, int], Awaitable[None]]


async def run(program: ComposedApplication, prepare: PrepareHook, started: StartedHook) -> None:
    """Serve until a signal. `prepare` runs after the database has opened and before anything else starts; `started` gets the HTTP
    port when the service is ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    on_signal = _StopSignalHandler(stop=stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    loop.set_exception_handler(_on_loop_exception)
    hypercorn.patch_hypercorn()
    listeners = bind_http_sockets(program.settings, program.worker)
    started_at = time.perf_counter()
    ready = False
    try:
        await start(program, prepare)
        server = asyncio.create_task(_serve_http(program, listeners, stop), name="http")
        interpreter.freeze()
        log.info("ready", seconds=round(time.perf_counter() - started_at, 2))
        ready = True
        await started(program, listeners[0].getsockname()[1])
        await server
        _raise_if_unexpected_exit(program, stop)
    finally:
        stop_s = await _stop(program)
        for listener in listeners:
            listener.close()
        if ready:
            log.info("stopped", seconds=stop_s)


async def start(program: ComposedApplication, prepare: PrepareHook) -> None:
    """Raises DatabaseUnusableError, Unavailable (broker), and what the storage raises."""
    adapters = program.adapters
    adapters.instance_lock.acquire()
    require_database(program.settings, adapters.database.file)
    await adapters.database.start()
    await program.services.life_recovery.load()
    adapters.feed.life = adapters.life.current
    await program.services.steady_time.judge_clock()
    program.services.clock_watch.look()
    if adapters.standby_link is None:
        await program.services.absence.start(None if adapters.cluster is None else partial(asyncio.sleep, PEER_POLL_S))
    await program.services.steady_time.start()
    await prepare(program)
    await recover_life(program)
    await program.services.notifications.start()
    await _open_cluster(program)
    if adapters.worker_bus is not None:
        await _open_shared_feed(program, adapters.worker_bus)
    workers, postgres_listener = program.workers, program.workers.postgres_listener
    if workers.log_follower is not None and postgres_listener is not None:
        await postgres_listener.open()
        await workers.log_follower.seek_to_end()
    if adapters.standby_link is None or postgres_listener is None or postgres_listener.leader_lock is None:
        replayed = await _open_device_link(program)
        program.supervisor.start()
    elif postgres_listener.leader_lock.acquired.is_set():
        program.supervisor.start()
        replayed = await become_leader(program)
    else:
        replayed = await _restore_engine(program)
        program.supervisor.start()
        lock = postgres_listener.leader_lock
        takeover = StandbyTakeoverWorker(leadership_acquired=lock.acquired, become_leader=lambda: become_leader(program))
        program.supervisor.add([takeover])
        log.warning(
            "another instance is leader and holds the devices; this one serves the API and takes over when the leader is gone"
        )
    if not adapters.is_single_instance:
        _follow_life(program)
    log.info("started", replayed=replayed, engine=adapters.engine.name)


async def recover_life(program: ComposedApplication) -> None:
    """Say it, and draw the consequences, where the database does not remember what the service did last. Raises Unavailable."""
    cause = await program.services.life_recovery.recover()
    if cause is not None:
        log.critical(
            f"{WHAT_HAPPENED[cause]}. Clients of the feed begin anew, commands that may have run end as TIMED_OUT, and edges "
            "that may have switched on are not run again. Keys, sessions and devices that were removed meanwhile are back: see "
            "docs/how-to/after-a-restore.md",
            cause=cause.value,
            life=program.adapters.life.current,
        )


def _follow_life(program: ComposedApplication) -> None:
    """A server may take over that does not have what this process has committed."""
    adapters, wake = program.adapters, WakeEvent()
    worker = DatabaseLifeWorker(
        life=adapters.life, recover=lambda: recover_life(program), reload=lambda: reload_life(program), wake_event=wake
    )

    def on_change() -> None:
        adapters.life.is_stale = True
        if adapters.cluster is not None:
            ownership = adapters.cluster.ownership
            for partition in ownership.partitions:
                ownership.drop(partition)  # an epoch of the earlier life proves nothing
        wake.set()
        program.workers.wake_events.event_log.set()

    adapters.life.on_change(on_change)
    program.supervisor.add([worker])


async def reload_life(program: ComposedApplication) -> None:
    """Read anew what this process holds of the database. Raises Unavailable."""
    adapters, services, workers = program.adapters, program.services, program.workers
    life = adapters.life.current
    async with services.engine_commit_lock:
        adapters.engine.engine.reset()
        await _restore_engine(program)
        workers.feed_interest.begin_life()
    if adapters.is_leader:
        await services.credential_sync.sync_all()
    await services.presence.begin_life()
    await workers.feed_interest.refresh()
    for event in (
        program.workers.wake_events.schedules,
        program.workers.wake_events.rule_timers,
        program.workers.wake_events.deliveries,
    ):
        event.set()
    if adapters.life.current == life:
        adapters.life.is_stale = False
    services.dispatch.begin_life()
    log.warning("everything was read anew from the database", life=adapters.life.current)


async def _open_cluster(program: ComposedApplication) -> None:
    """Raises StartupError, ValidationFailed, Unavailable."""
    cluster, workers, feed = program.adapters.cluster, program.workers.cluster, program.workers.shared_feed
    if cluster is None or workers is None or feed is None:
        return
    from app.wiring.cluster import require_safe_log, require_same_clock  # needs NATS' client; a single instance does not

    await require_same_clock(program.settings, program.adapters.database, program.adapters.clock)
    await require_safe_log(program.settings)
    await cluster.inbound_log.open()
    await workers.partitions.prepare()
    front = workers.front

    def on_move(sender: str) -> None:
        workers.lease.on_joined(sender)
        cluster.beat_wake.set()

    async def close_older(devices: ConnectedDevices) -> None:
        front.close_older(devices)

    await cluster.bus.answer_calls(lambda: workers.lease.is_valid)
    await cluster.bus.answer_leases(workers.lease.answer)
    await cluster.bus.on_moves(on_move)
    await cluster.bus.on_connected(close_older)
    await feed.start()
    await cluster.bus.announce_move()  # before the first beat: from then on people can change credentials here
    await cluster.bus.flush()
    await workers.partitions.beat()
    await cluster.bus.announce_move()


async def _open_shared_feed(program: ComposedApplication, bus: UnixSocketFeedBus) -> None:
    await bus.open()
    if program.workers.shared_feed is not None:
        await program.workers.shared_feed.start(is_alone=_is_first_worker(program))


def _is_first_worker(program: ComposedApplication) -> bool:
    """No other worker process has started yet."""
    return program.worker is not None and program.worker.is_first_start


async def _open_device_link(program: ComposedApplication) -> int:
    """Restore the engine, send the device credentials to the link, then open the link. Returns the number of replayed rows."""
    adapters, services = program.adapters, program.services
    replayed = await _restore_engine(program)
    await services.credential_sync.sync_all()
    if services.credential_sync.unreadable_count:
        log.warning(
            "devices cannot connect: their passwords were sealed with keys that are not in the key ring. Restore secret_keys, or "
            "generate new credentials for them",
            devices=services.credential_sync.unreadable_count,
        )
    await program.workers.feed_interest.refresh()
    await _leave_edges_to_devices(program)
    await adapters.link.start()
    return replayed


async def _leave_edges_to_devices(program: ComposedApplication) -> None:
    """Edges that were due while no device could be heard wait for the devices' word, which may come at once."""
    if not program.services.absence.is_open:
        return
    try:
        await program.workers.schedules.run_once()
    except Exception:
        log.exception("the edges that were due meanwhile could not be decided yet; the schedule worker tries again")


async def _restore_engine(program: ComposedApplication) -> int:
    program.services.engine_clock.start()
    if program.adapters.cluster is not None:
        return 0  # each partition is restored when this instance takes it over
    absence = program.services.absence.current
    result = await restore_engine(program.adapters.engine.engine, program.services.uow, program.adapters.clock.now_ms())
    if absence is not None:
        program.adapters.engine.engine.deafen(absence.since_ms, absence.until_ms)
    if result.unreadable_devices:
        log.error(
            "some readings in the database are damaged and were skipped; the last values of these devices may be old until they "
            "report again. Check the disk, and restore a backup if more data is missing",
            devices=len(result.unreadable_devices),
            device_numbers=sorted(result.unreadable_devices)[:20],
        )
    return result.replayed_rows


async def become_leader(program: ComposedApplication) -> int:
    """Take over the devices, whether or not the previous leader ended in good order."""
    adapters = program.adapters
    if adapters.standby_link is not None:
        adapters.standby_link.activate()
    async with program.services.engine_commit_lock:
        await program.services.absence.start()
        replayed = await _open_device_link(program)
        _resume_readings(program)
    program.supervisor.add(program.workers.start_on_leadership())
    log.info("devices can connect", replayed=replayed)
    return replayed


def _resume_readings(program: ComposedApplication) -> None:
    """The feed's clients here got no readings until now, or not the last ones of a leader that is gone: they resume, and miss
    none."""
    if program.workers.shared_feed is None or _is_first_worker(program):
        program.adapters.feed.close_reading_subscriptions()
    else:
        program.workers.shared_feed.on_takeover()


async def _stop(program: ComposedApplication) -> float:
    """Stop all parts, also after a start that failed half way. A step runs even if an earlier step failed. Returns the
    seconds."""
    adapters = program.adapters
    adapters.feed.stop()
    started_at = time.perf_counter()
    for step in (
        program.supervisor.stop,
        lambda: _leave_cluster(program),
        adapters.link.stop,
        lambda: _flush_pending_writes(program),
        adapters.courier.close,
        *(() if adapters.cluster is None else (adapters.cluster.inbound_log.close, adapters.cluster.membership_database.stop)),
        lambda: _release_leadership(program),
        adapters.mail_queue.close,
        program.services.notifications.sender.close,
        program.services.sign_in.close,
        program.services.stored_telemetry.close,
        *(() if adapters.worker_bus is None else (adapters.worker_bus.close,)),
        adapters.database.stop,
    ):
        timeout_s = max(0.2, STOP_TIMEOUT_S - (time.perf_counter() - started_at))
        try:
            async with asyncio.timeout(timeout_s):
                await step()
        except Exception:
            log.exception("a step of the stop failed; the next start recovers what was not written")
    adapters.hasher.close()
    adapters.login_hasher.close()
    adapters.instance_lock.release()
    return round(time.perf_counter() - started_at, 2)


async def _leave_cluster(program: ComposedApplication) -> None:
    """Give the partitions up, and what belongs to them at an external broker, and tell the others. Before the link stops: others
    take the partitions over while devices say goodbye. Raises Unavailable."""
    cluster, workers = program.adapters.cluster, program.workers.cluster
    if cluster is None or workers is None:
        return
    await _flush_pending_writes(program)
    program.adapters.link.hold_partitions(())
    await workers.inbound.stop()
    await workers.partitions.leave()
    await cluster.bus.announce_move()


async def _release_leadership(program: ComposedApplication) -> None:
    """Release leadership last: until then, no other instance may take over the devices."""
    if program.workers.postgres_listener is not None:
        await program.workers.postgres_listener.close()


async def _flush_pending_writes(program: ComposedApplication) -> None:
    try:
        if program.adapters.is_leader:
            await program.workers.checkpoint.write()
            await program.services.dropped_messages.write_pending()
            await program.services.steady_time.keep()
        await program.services.callers.flush_last_used()
        await program.services.logins.flush_throttled_logins()
        await program.services.denial_log.flush(everything=True)
    except Unavailable as error:
        log.warning(
            "the last checkpoint could not be written; the next start replays the readings since the one before", error=str(error)
        )


async def _serve_http(program: ComposedApplication, listeners: Sequence[socket.socket], stop: asyncio.Event) -> None:
    async def shut_down() -> None:
        for listener in listeners:
            listener.listen(LISTEN_BACKLOG)  # by now the server listens, with ACCEPT_BATCH for the backlog
        await _wait_for_any(stop, program.supervisor.shutdown_requested)
        program.adapters.feed.stop()

    config = hypercorn_config(listeners, program.http_connections)
    await hypercorn_serve(program.http_app, config, shutdown_trigger=shut_down, mode="asgi")


async def _wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _raise_if_unexpected_exit(program: ComposedApplication, stop: asyncio.Event) -> None:
    """Raises Unavailable when the service ended for another reason than a signal."""
    if program.supervisor.shutdown_requested.is_set():
        errors = "; ".join(f"{worker}: {error}" for worker, error in program.supervisor.current_errors().items())
        raise Unavailable(f"A worker kept failing, so the service ended ({errors}). See the log, then start the service again.")
    if not stop.is_set():
        raise Unavailable("The HTTP server ended unexpectedly. See the log for the reason, then start the service again.")


@service
class _StopSignalHandler:
    """The first signal stops the service in good order; a later one ends the process at once. A second signal within
    DUPLICATE_SIGNAL_S counts as the first: a shell and `timeout` both signal the process and its group."""

    stop: asyncio.Event
    _first_signal_at: float = field(default=0.0, init=False)

    def __call__(self) -> None:
        if not self.stop.is_set():
            self._first_signal_at = time.monotonic()
            self.stop.set()
        elif time.monotonic() - self._first_signal_at > DUPLICATE_SIGNAL_S:
            os._exit(1)  # acknowledged data is durable, and a normal exit would wait for database threads


def _on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Python 3.11 reports a connection that the stop cancelled as a failed callback; 3.12 does not."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)
