"""The shape of a worker that sleeps until something is due: do all there is, sleep until the bell or the next instant, again.

A failure is counted, logged and followed by a pause that grows, because most are a database that is away for a moment; what was
to be done is still due afterwards. A worker says in `_work` what it does and for how long there will be nothing.
"""

from __future__ import annotations

import asyncio

import structlog

from app.workers.wake_event import WakeEvent
from domain.kernel.backoff import RETRY_BACKOFF

MAX_SLEEP_S = 30.0
"""The wall clock may be set while we sleep, and another instance may add what we must do."""
MIN_SLEEP_S = 0.001


class DueWorker:
    name = ""

    def __init__(self, bell: WakeEvent) -> None:
        self._wake_event = bell
        self._log = structlog.get_logger(self.name)
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                sleep_s = await self.run_once()
            except Exception as error:
                self.failures += 1
                attempt += 1
                pause_s = RETRY_BACKOFF.pause_s(attempt)
                self._log.warning("its work waits", error=repr(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            attempt = 0
            await self.sleep(sleep_s)

    async def run_once(self) -> float:
        """All there is to do now; returns for how long there is nothing, in seconds."""
        raise NotImplementedError

    async def sleep(self, sleep_s: float) -> None:
        await self._wake_event.wait(sleep_s)


def seconds_until(due_ms: int | None, now_ms: int, longest_s: float = MAX_SLEEP_S) -> float:
    """Seconds to sleep for what is due then; None: nothing is."""
    if due_ms is None:
        return longest_s
    return min(max(MIN_SLEEP_S, (due_ms - now_ms) / 1000), longest_s)
