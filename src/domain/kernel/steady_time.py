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
from typing import Protocol

from domain.kernel.clock import DAY_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import Transaction, UnitOfWork

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
            greatest_ms = await tx.steady_time.advance(self.clock.steady_ms(), self.clock.now_ms(), self.heard_ms())
        if greatest_ms > self.clock.steady_ms():
            self.clock.set_steady(greatest_ms)
