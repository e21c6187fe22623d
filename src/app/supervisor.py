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

from domain.kernel.errors import Unavailable

PAUSES_S = (0.1, 0.5, 2.0, 5.0, 15.0)
STEADY_AFTER_S = 30.0
GIVEN_UP_AFTER = 20
"""Failures of one loop in a row, none of its runs steady: with the pauses above, about four minutes."""
STOP_WITHIN_S = 3.0

log = structlog.get_logger("supervisor")


class Loop(Protocol):
    name: str

    async def run(self) -> None:
        """Works until it is cancelled; returning is as wrong as raising."""
        ...


class GoesNoFurther(Exception):
    """A loop says that the program must end: going on would do harm. The message says what has happened, and what to do."""


@dataclass(slots=True)
class Watch:
    """How one loop fares. `failures` counts since the start, `trouble` says what ails it now."""

    loop: Loop
    failures: int = 0
    trouble: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Supervisor:
    def __init__(self, loops: Sequence[Loop]) -> None:
        self.watches = [Watch(loop) for loop in loops]
        self.given_up = asyncio.Event()

    def start(self) -> None:
        for watch in self.watches:
            self._begin(watch)

    def add(self, loops: Sequence[Loop]) -> None:
        """More loops while the others run; they are the first to be stopped."""
        for loop in loops:
            self.watches.append(watch := Watch(loop))
            self._begin(watch)

    def _begin(self, watch: Watch) -> None:
        watch.task = asyncio.create_task(self._keep(watch), name=watch.loop.name)

    async def stop(self) -> None:
        """Cancel and wait. A loop that does not let go in time is named and left."""
        for watch in reversed(self.watches):
            if watch.task is None:
                continue
            watch.task.cancel()
            done, _ = await asyncio.wait([watch.task], timeout=STOP_WITHIN_S)
            if not done:
                log.error("a worker did not stop in time", worker=watch.loop.name)

    def troubles(self) -> dict[str, str]:
        return {watch.loop.name: watch.trouble for watch in self.watches if watch.trouble is not None}

    async def _keep(self, watch: Watch) -> None:
        clock = asyncio.get_running_loop()
        tries = faults = 0
        while True:
            began = clock.time()
            steady = clock.call_later(STEADY_AFTER_S, _recovered, watch)
            try:
                await watch.loop.run()
                raise RuntimeError("returned, though a worker never does")
            except asyncio.CancelledError:
                raise
            except GoesNoFurther as error:
                watch.trouble = str(error)
                log.error("the program ends", worker=watch.loop.name, error=str(error))
                self.given_up.set()
                return
            except Exception as error:
                faults += not isinstance(error, Unavailable)
                watch.failures += 1
                watch.trouble = f"{type(error).__name__}: {error}"[:200]
                log.exception("a worker failed and will be started again", worker=watch.loop.name)
            finally:
                steady.cancel()
            if clock.time() - began > STEADY_AFTER_S:
                tries = faults = 0
            tries += 1
            if faults >= GIVEN_UP_AFTER and not self.given_up.is_set():
                log.critical("a worker fails again and again; the service ends", worker=watch.loop.name, failures=faults)
                self.given_up.set()
            await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S)) - 1])


def _recovered(watch: Watch) -> None:
    watch.trouble = None
