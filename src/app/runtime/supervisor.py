"""Every background task has an owner: this one. It starts the loops, restarts one that fails, and stops them all.

A loop that fails is logged, counted and started again after a pause that grows; until it has run for a while `/readyz` says which
one is in trouble. One that fails again and again, for some minutes, is given up, and the program with it: half a service looks
alive and switches nothing, while a fresh start by whoever watches the process often heals. What a loop lacks from outside
(`Unavailable`: a database that is away) is no such reason, however long it lasts. Stopping cancels the loops in the reverse order
of their start and waits, bounded in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from domain.kernel.backoff import Backoff
from domain.kernel.errors import Unavailable

RESTART_BACKOFF = Backoff((0.1, 0.5, 2.0, 5.0, 15.0))
STABLE_AFTER_S = 30.0
MAX_CONSECUTIVE_FAILURES = 20
"""Failures of one loop in a row, none of its runs steady: with the pauses above, about four minutes."""
STOP_TIMEOUT_S = 3.0

log = structlog.get_logger("supervisor")


class Worker(Protocol):
    name: str

    async def run(self) -> None:
        """Works until it is cancelled; returning is as wrong as raising."""
        ...


class FatalWorkerError(Exception):
    """A loop says that the program must end: going on would do harm. The message says what has happened, and what to do."""


@dataclass(slots=True)
class SupervisedWorker:
    """How one loop fares. `failures` counts since the start, `trouble` says what ails it now."""

    worker: Worker
    failures: int = 0
    current_error: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Supervisor:
    def __init__(self, loops: Sequence[Worker]) -> None:
        self.supervised = [SupervisedWorker(loop) for loop in loops]
        self.shutdown_requested = asyncio.Event()

    def start(self) -> None:
        for watch in self.supervised:
            self._start_worker(watch)

    def add(self, loops: Sequence[Worker]) -> None:
        """More loops while the others run; they are the first to be stopped."""
        for loop in loops:
            self.supervised.append(watch := SupervisedWorker(loop))
            self._start_worker(watch)

    def _start_worker(self, watch: SupervisedWorker) -> None:
        watch.task = asyncio.create_task(self._run_with_restarts(watch), name=watch.worker.name)

    async def stop(self) -> None:
        """Cancel and wait. A loop that does not let go in time is named and left."""
        for watch in reversed(self.supervised):
            if watch.task is None:
                continue
            watch.task.cancel()
            done, _ = await asyncio.wait([watch.task], timeout=STOP_TIMEOUT_S)
            if not done:
                log.error("a worker did not stop in time", worker=watch.worker.name)

    def current_errors(self) -> dict[str, str]:
        return {watch.worker.name: watch.current_error for watch in self.supervised if watch.current_error is not None}

    async def _run_with_restarts(self, watch: SupervisedWorker) -> None:
        clock = asyncio.get_running_loop()
        tries = faults = 0
        while True:
            began = clock.time()
            steady = clock.call_later(STABLE_AFTER_S, _clear_error, watch)
            try:
                await watch.worker.run()
                raise RuntimeError("returned, though a worker never does")
            except asyncio.CancelledError:
                raise
            except FatalWorkerError as error:
                watch.current_error = str(error)
                log.error("the program ends", worker=watch.worker.name, error=str(error))
                self.shutdown_requested.set()
                return
            except Exception as error:
                faults += not isinstance(error, Unavailable)
                watch.failures += 1
                watch.current_error = f"{type(error).__name__}: {error}"[:200]
                log.exception("a worker failed and will be started again", worker=watch.worker.name)
            finally:
                steady.cancel()
            if clock.time() - began > STABLE_AFTER_S:
                tries = faults = 0
            tries += 1
            if faults >= MAX_CONSECUTIVE_FAILURES and not self.shutdown_requested.is_set():
                log.critical("a worker fails again and again; the service ends", worker=watch.worker.name, failures=faults)
                self.shutdown_requested.set()
            await asyncio.sleep(RESTART_BACKOFF.pause_s(tries))


def _clear_error(watch: SupervisedWorker) -> None:
    watch.current_error = None
