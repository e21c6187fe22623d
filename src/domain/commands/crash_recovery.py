"""What a process that ended may have done without recording it: a command is sent first, and recorded as sent afterwards."""

from __future__ import annotations

from domain.commands.ports import HasCommandExecutions
from domain.kernel.clock import Clock
from domain.kernel.unit_of_work import UnitOfWork


class CommandCrashRecovery:
    def __init__(self, *, uow: UnitOfWork[HasCommandExecutions], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock

    async def mark_possibly_sent(self) -> int:
        """Mark what is queued for devices that were online as possibly sent. Call it once, before this process sends anything.
        Returns how many; raises Unavailable."""
        async with self._uow.write(caller=None) as tx:
            return await tx.executions.mark_possibly_sent(self._clock.now_ms())
