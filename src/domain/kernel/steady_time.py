"""Steady time: the clock of what is stored and lasts for a while, such as a lease or the pause before a retry.

The wall clock may be set, and a monotonic clock ends with its machine. Steady time belongs to the database: one row has how far
it has come. Each process counts on from there by its monotonic clock, and writes the row every few seconds. The greatest value
counts, so the instances agree, whatever their wall clocks say. After a step of the clock no row has to be repaired.

Only how long no process ran is measured by a wall clock, that of the database. When it is set in that time, or less than
KEEP_INTERVAL_S before a kill, what waits is due early, by a day at most, or late by the time of the stop. (A module of its own,
because it needs transactions and `clock.py` lies below them.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from domain.kernel.clock import DAY_MS, MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import Transaction, UnitOfWork
from domain.kernel.wall_clock import WallClock

KEEP_INTERVAL_S = 10.0
MAX_STOP_MS = DAY_MS
"""A longer stop counts as this long. Any pause that is stored is over by then, and the five days after which a webhook is
disabled are not: a wrong clock at the start disables none."""


class SettableSteadyClock(Clock, Protocol):
    def set_steady(self, steady_ms: int) -> None:
        """From now on, `steady_ms` counts from here."""


@service
class SteadyTimePersistenceService:
    uow: UnitOfWork[Transaction]
    clock: SettableSteadyClock
    heard_ms: Callable[[], int | None] = lambda: None
    """The steady time up to which devices were heard (`AbsenceTracker`), stored with it; None: not known."""
    wall: WallClock | None = None
    """The clock that is judged; None where nobody judges it."""
    _confirmed_ms: int | None = field(default=None, init=False)

    async def judge_clock(self) -> None:
        """Compare the machine's clock with the time that is stored. Call first of all. Raises Unavailable."""
        if self.wall is None:
            return
        async with self.uow.read() as tx:
            stored = await tx.steady_time.find(self.wall.wall_ms())
        if stored is None or stored.wall_offset_ms is None:
            self.wall.start(None)
        else:
            self.wall.start(stored.steady_ms + stored.wall_offset_ms, stored.age_ms)

    @property
    def is_clock_confirmed(self) -> bool:
        """Whether a person has just said that the clock, as it is now, is right."""
        if self.wall is None or self._confirmed_ms is None:
            return False
        return abs(self.wall.wall_ms() - self._confirmed_ms) < MINUTE_MS

    async def start(self) -> None:
        """Continue from what is stored; a new database begins with the wall time. Call before anything uses steady time. Raises
        Unavailable."""
        async with self.uow.read() as tx:
            stored = await tx.steady_time.find(self.clock.now_ms())
        if stored is not None:
            self.clock.set_steady(stored.steady_ms + min(max(0, stored.age_ms), MAX_STOP_MS))
        await self.keep()

    async def keep(self) -> None:
        """Store how far it has come, and catch up with the other instances. Raises Unavailable."""
        async with self.uow.write(caller=None) as tx:
            steady_ms, now_ms = self.clock.steady_ms(), self.clock.now_ms()
            is_certain = self.wall is None or self.wall.doubt is None
            offset_ms = now_ms - steady_ms if is_certain else None
            stored = await tx.steady_time.advance(steady_ms, now_ms, self.heard_ms(), offset_ms)
        self._confirmed_ms = stored.confirmed_ms
        if stored.steady_ms > self.clock.steady_ms():
            self.clock.set_steady(stored.steady_ms)
