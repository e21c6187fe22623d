"""Every background task has an owner: this one. It starts the loops, restarts one that fails, and stops them all.

A loop that fails is logged, counted and started again after a pause that grows; until it has run for a while `/readyz` says which
one is in trouble. One without which the service is of no use (`critical`) and that keeps failing ends the service instead, so that
whoever runs it starts it afresh. Stopping cancels all loops, in the reverse order of their start, and waits, bounded in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

PAUSES_S = (0.1, 0.5, 2.0, 5.0, 15.0)
STEADY_AFTER_S = 10.0
STOP_WITHIN_S = 2.5
LOST_AFTER = 6
"""Failures in a row, some 23 seconds, after which a critical loop counts as lost."""

log = structlog.get_logger("supervisor")


class Loop(Protocol):
    name: str

    async def run(self) -> None:
        """Works until it is cancelled; returning is as wrong as raising."""
        ...


@dataclass(slots=True)
class Watch:
    """How one loop fares. `failures` counts since the start, `trouble` says what ails it now."""

    loop: Loop
    failures: int = 0
    trouble: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Supervisor:
    def __init__(self, loops: Sequence[Loop], *, critical: frozenset[str] = frozenset(), pauses_s: Sequence[float] = PAUSES_S) -> None:
        self.watches = [Watch(loop) for loop in loops]
        self.lost = asyncio.Event()
        """Set when a critical loop is lost."""
        self._critical = critical
        self._pauses_s = pauses_s
        self._stopping = False

    def start(self) -> None:
        for watch in self.watches:
            watch.task = asyncio.create_task(self._keep(watch), name=watch.loop.name)

    def expect_end(self) -> None:
        """From now on a loop that ends because its source has dried up is no failure."""
        self._stopping = True

    async def stop(self) -> None:
        """Cancel and wait. A loop that does not let go in time is named and left."""
        self._stopping = True
        tasks = [watch.task for watch in reversed(self.watches) if watch.task is not None]
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, held = await asyncio.wait(tasks, timeout=STOP_WITHIN_S)
        for task in held:
            log.error("a worker did not stop in time", worker=task.get_name())

    def troubles(self) -> dict[str, str]:
        return {watch.loop.name: watch.trouble for watch in self.watches if watch.trouble is not None}

    async def _keep(self, watch: Watch) -> None:
        clock = asyncio.get_running_loop()
        tries = 0
        while True:
            began = clock.time()
            steady = clock.call_later(STEADY_AFTER_S, _recovered, watch)
            try:
                await watch.loop.run()
                raise RuntimeError("returned, though a worker never does")
            except Exception as error:
                if self._stopping:
                    return
                self._note(watch, error)
            finally:
                steady.cancel()
            tries = 0 if clock.time() - began > STEADY_AFTER_S else tries + 1
            if tries >= LOST_AFTER and watch.loop.name in self._critical:
                log.critical("a worker that the service cannot do without is lost", worker=watch.loop.name)
                self.lost.set()
            await asyncio.sleep(self._pauses_s[min(tries, len(self._pauses_s)) - 1 if tries else 0])

    def _note(self, watch: Watch, error: Exception) -> None:
        watch.failures += 1
        watch.trouble = f"{type(error).__name__}: {error}"[:200]
        log.error("a worker failed and will be started again", worker=watch.loop.name, exc_info=error)


def _recovered(watch: Watch) -> None:
    watch.trouble = None
