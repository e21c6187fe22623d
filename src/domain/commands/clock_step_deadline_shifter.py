"""The clock that the deadlines of commands are meant in.

A deadline is stored as wall time, as people and devices see it, but lasts by the monotonic clock: when the wall clock is set, the
stored deadlines are moved along.
"""

from __future__ import annotations

from domain.commands.ports import HasCommandExecutions
from domain.kernel.clock import MINUTE_MS, Clock, ClockStepDetector
from domain.kernel.unit_of_work import UnitOfWork

MAX_UNNOTICED_MS = MINUTE_MS
"""The clock may have been set this long before the dispatcher notices; it looks every 30 s. Commands that were created since have
their deadlines by the new time."""


class ClockStepDeadlineShifter:
    def __init__(self, *, uow: UnitOfWork[HasCommandExecutions], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock
        self._steps: ClockStepDetector | None = None
        self._pending_step_ms = 0
        """By how much the stored deadlines are still to be moved."""

    def now_ms(self) -> int:
        """The time that the stored deadlines are meant in since `follow`."""
        return self._clock.now_ms() if self._steps is None else self._steps.now_ms()

    async def follow(self) -> bool:
        """Move the stored deadlines along when the wall clock has been set; True if that was so. At the first call, no deadline
        stays further away than its command's whole time, in case the clock was ahead before the start. Raises Unavailable."""
        if self._steps is None:
            steps = ClockStepDetector(self._clock)
            await self._shift(0, steps.now_ms(), 0)
            self._steps = steps
            return False
        self._pending_step_ms += self._steps.take_ms()
        if self._pending_step_ms == 0:
            return False
        now_ms = self._steps.now_ms()
        await self._shift(self._pending_step_ms, now_ms, now_ms - MAX_UNNOTICED_MS)
        self._pending_step_ms = 0
        return True

    async def _shift(self, step_ms: int, now_ms: int, unshifted_from_ms: int) -> None:
        async with self._uow.write(caller=None) as tx:
            await tx.executions.shift_expiry(step_ms, now_ms, unshifted_from_ms)
