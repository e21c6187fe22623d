"""The one way to run a background loop: do all work that is due, then sleep until woken or until the next work is due.

After a failure the loop logs, counts, and tries again after a growing pause: most failures are a database that does not answer
for a moment, and the work stays due. A loop without state of its own is a value, a `DueWorker`; one that keeps something between
its rounds is a class that inherits `DueLoop`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from app.runtime.supervisor import BackgroundWorker
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.dataclasses import service

MAX_SLEEP_S = 30.0
"""Upper bound of a sleep: the wall clock may be set meanwhile, and another instance may add work."""
MIN_SLEEP_S = 0.001
CHECK_INTERVAL_S = 1.0

RunOnce = Callable[[], Awaitable[float]]
"""Does all work that is due now. Returns the seconds until the next work is due."""


class WakeEvent:
    """Wakes a worker that sleeps until something is due. Set before the wait, the event ends the next wait; set twice, it wakes
    once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set_count = 0
        """Lets another part see whether it was set since it last looked."""

    def set(self) -> None:
        """Call this from the thread of the event loop only."""
        self.set_count += 1
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """True when the event was set, False when the time was up. Clears the event."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


@service
class DueLoop:
    name = ""
    backoff = RETRY_BACKOFF

    wake_event: WakeEvent
    failures: int = field(default=0, init=False)

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                sleep_s = await self.run_once()
            except Exception as error:
                self.failures += 1
                attempt += 1
                pause_s = self.backoff.pause_s(attempt)
                log = structlog.get_logger(self.name)
                log.warning("the worker failed and tries again", error=repr(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            attempt = 0
            await self.sleep(sleep_s)

    async def run_once(self) -> float:
        """Do all work that is due now. Returns the seconds until the next work is due."""
        raise NotImplementedError

    async def sleep(self, sleep_s: float) -> None:
        await self.wake_event.wait(sleep_s)


class DueWorker(DueLoop):
    """`name`: of the loop in the log, the metrics and `/readyz`. Without a wake event only the time wakes it."""

    def __init__(self, name: str, run_once: RunOnce, wake_event: WakeEvent | None = None) -> None:
        super().__init__(wake_event=wake_event or WakeEvent())
        self.name = name
        self._run_once = run_once

    async def run_once(self) -> float:
        return await self._run_once()


def drain(
    step: Callable[[], Awaitable[object]], next_due_ms: Callable[[], Awaitable[int | None]], now_ms: Callable[[], int]
) -> RunOnce:
    """Repeat `step` while it finds something to do; then sleep until `next_due_ms`, by the clock of `now_ms`."""

    async def run_once() -> float:
        while await step():
            pass
        return seconds_until(await next_due_ms(), now_ms())

    return run_once


def seconds_until(due_ms: int | None, now_ms: int, longest_s: float = MAX_SLEEP_S) -> float:
    """Seconds from `now_ms` to `due_ms`, within bounds; `longest_s` when nothing is due (None)."""
    if due_ms is None:
        return longest_s
    return min(max(MIN_SLEEP_S, (due_ms - now_ms) / 1000), longest_s)


@service
class SingleInstanceWorker:
    """Runs a worker on one instance of a cluster at a time: the one for which `is_chosen` holds.

    For a moment two instances may both believe that they are it. So this is for workers that do no harm when they run twice."""

    worker: BackgroundWorker
    is_chosen: Callable[[], bool]

    def __post_init__(self) -> None:
        self.name = self.worker.name

    async def run(self) -> None:
        while True:
            if self.is_chosen():
                await self._run_while_chosen()
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _run_while_chosen(self) -> None:
        """Raises what the worker raises."""
        running = asyncio.create_task(self.worker.run(), name=self.name)
        try:
            while self.is_chosen():
                done, _ = await asyncio.wait([running], timeout=CHECK_INTERVAL_S)
                if done:
                    return running.result()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running


@dataclass(slots=True)
class WakeEvents:
    """One event for each worker that others wake."""

    dispatch: WakeEvent = field(default_factory=WakeEvent)
    notifications: WakeEvent = field(default_factory=WakeEvent)
    approvals: WakeEvent = field(default_factory=WakeEvent)
    schedules: WakeEvent = field(default_factory=WakeEvent)
    device_plans: WakeEvent = field(default_factory=WakeEvent)
    presence: WakeEvent = field(default_factory=WakeEvent)
    device_cleanup: WakeEvent = field(default_factory=WakeEvent)
    dropped_messages: WakeEvent = field(default_factory=WakeEvent)
    deliveries: WakeEvent = field(default_factory=WakeEvent)
    recoveries: WakeEvent = field(default_factory=WakeEvent)
    rule_timers: WakeEvent = field(default_factory=WakeEvent)
    feed_interest: WakeEvent = field(default_factory=WakeEvent)
    event_log: WakeEvent = field(default_factory=WakeEvent)
