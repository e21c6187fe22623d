"""The shape of a worker that sleeps until something is due: do all there is, sleep until the bell or the next instant, again.

A failure is counted, logged and followed by a pause that grows, because most are a database that is away for a moment; what was
to be done is still due afterwards. A worker says in `_work` what it does and for how long there will be nothing.
"""

from __future__ import annotations

import asyncio

import structlog

from app.loops.doorbell import Doorbell

LONGEST_SLEEP_S = 30.0
"""The wall clock may be set while we sleep, and another instance may add what we must do."""
SHORTEST_SLEEP_S = 0.001
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)


class WakingLoop:
    name = ""

    def __init__(self, bell: Doorbell) -> None:
        self._bell = bell
        self._log = structlog.get_logger(self.name)
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                sleep_s = await self._work()
            except Exception as error:
                self.failures += 1
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                self._log.warning("its work waits", error=repr(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            attempt = 0
            await self._rest(sleep_s)

    async def _work(self) -> float:
        """All there is to do now; returns for how long there is nothing, in seconds."""
        raise NotImplementedError

    async def _rest(self, sleep_s: float) -> None:
        await self._bell.wait(sleep_s)


def until(due_ms: int | None, now_ms: int, longest_s: float = LONGEST_SLEEP_S) -> float:
    """Seconds to sleep for what is due then; None: nothing is."""
    if due_ms is None:
        return longest_s
    return min(max(SHORTEST_SLEEP_S, (due_ms - now_ms) / 1000), longest_s)
