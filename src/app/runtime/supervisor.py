"""Starts the background workers, restarts a worker that fails, and stops all of them.

The supervisor logs and counts each failure and restarts the worker after a growing pause; `/readyz` shows the error until the
worker has run for a while. A worker that keeps failing for some minutes ends the program: half a service looks alive and switches
nothing, and a restart often helps. `Unavailable`, for example a database that does not answer, never ends the program. A stop
cancels the workers in the reverse order of their start and waits for a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

import structlog

from domain.kernel.backoff import Backoff
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable

RESTART_BACKOFF = Backoff((0.1, 0.5, 2.0, 5.0, 15.0))
STABLE_AFTER_S = 30.0
MAX_CONSECUTIVE_FAILURES = 20
"""Failures in a row without a stable run in between; with the pauses above, about four minutes."""
STOP_TIMEOUT_S = 3.0

log = structlog.get_logger("supervisor")


class BackgroundWorker(Protocol):
    name: str

    async def run(self) -> None:
        """Work until cancelled. A worker must not return."""


class FatalWorkerError(Exception):
    """A worker raises this to end the program, because continuing would do harm. The message says what happened and what to
    do."""


@dataclass(slots=True)
class WorkerState:
    """A worker and its state. `failures` counts since the start; `current_error` is None while the worker is healthy."""

    worker: BackgroundWorker
    failures: int = 0
    current_error: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class WorkerSupervisor:
    def __init__(self, workers: Sequence[BackgroundWorker]) -> None:
        self.supervised = [WorkerState(worker) for worker in workers]
        self.shutdown_requested = asyncio.Event()

    def start(self) -> None:
        for supervised in self.supervised:
            self._start_worker(supervised)

    def add(self, workers: Sequence[BackgroundWorker]) -> None:
        """Start more workers while the others run. They stop first."""
        for worker in workers:
            self.supervised.append(supervised := WorkerState(worker))
            self._start_worker(supervised)

    def _start_worker(self, supervised: WorkerState) -> None:
        supervised.task = asyncio.create_task(self._run_with_restarts(supervised), name=supervised.worker.name)

    async def stop(self) -> None:
        """Cancel all workers and wait. A worker that does not end in time is logged and left behind."""
        for supervised in reversed(self.supervised):
            if supervised.task is None:
                continue
            supervised.task.cancel()
            done, _ = await asyncio.wait([supervised.task], timeout=STOP_TIMEOUT_S)
            if not done:
                log.error("a worker did not stop in time", worker=supervised.worker.name)

    def current_errors(self) -> dict[str, str]:
        return {
            supervised.worker.name: supervised.current_error
            for supervised in self.supervised
            if supervised.current_error is not None
        }

    async def _run_with_restarts(self, supervised: WorkerState) -> None:
        clock = asyncio.get_running_loop()
        tries = faults = 0
        while True:
            started = clock.time()
            stable_timer = clock.call_later(STABLE_AFTER_S, _clear_error, supervised)
            try:
                await supervised.worker.run()
                raise RuntimeError("the worker returned; a worker must run until cancelled")
            except asyncio.CancelledError:
                raise
            except FatalWorkerError as error:
                supervised.current_error = str(error)
                log.error("the program ends", worker=supervised.worker.name, error=str(error))
                self.shutdown_requested.set()
                return
            except Exception as error:
                faults += not isinstance(error, Unavailable)
                supervised.failures += 1
                supervised.current_error = f"{type(error).__name__}: {error}"[:200]
                log.exception("a worker failed and will be restarted", worker=supervised.worker.name)
            finally:
                stable_timer.cancel()
            if clock.time() - started > STABLE_AFTER_S:
                tries = faults = 0
            tries += 1
            if faults >= MAX_CONSECUTIVE_FAILURES and not self.shutdown_requested.is_set():
                log.critical("a worker keeps failing; the service ends", worker=supervised.worker.name, failures=faults)
                self.shutdown_requested.set()
            await asyncio.sleep(RESTART_BACKOFF.pause_s(tries))


def _clear_error(supervised: WorkerState) -> None:
    supervised.current_error = None


@service
class LockWithTimeout:
    """For requests: wraps a lock that a worker may hold for long. Entering raises Unavailable after `timeout_s`."""

    lock: asyncio.Lock
    timeout_s: float = 5.0

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.lock.acquire()
        except TimeoutError:
            raise Unavailable("The service is busy storing telemetry. Try again in a moment.") from None

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.lock.release()
