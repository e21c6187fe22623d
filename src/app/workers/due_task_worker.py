"""A worker that does all due work, then sleeps until its wake event or until the next work is due.

After a failure the worker logs, counts, and tries again after a growing pause: most failures are a database that does not answer
for a moment, and the work stays due.
"""

from __future__ import annotations

import asyncio
from dataclasses import field

import structlog

from app.workers.wake_event import WakeEvent
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.dataclasses import service

MAX_SLEEP_S = 30.0
"""Upper bound of a sleep: the wall clock may be set meanwhile, and another instance may add work."""
MIN_SLEEP_S = 0.001


@service
class DueTaskWorker:
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


def seconds_until(due_ms: int | None, now_ms: int, longest_s: float = MAX_SLEEP_S) -> float:
    """Seconds from `now_ms` to `due_ms`, within bounds; `longest_s` when nothing is due (None)."""
    if due_ms is None:
        return longest_s
    return min(max(MIN_SLEEP_S, (due_ms - now_ms) / 1000), longest_s)
