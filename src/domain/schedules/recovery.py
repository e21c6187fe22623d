"""What follows when the database is of another life (`kernel/life.py`) and does not remember what the service did last.

Nobody knows whether a queued command was sent, an edge has run, or a plan was changed. So commands that wait count as possibly
sent and end as TIMED_OUT, never as EXPIRED; edges of that time that switch on are not run again (`firing.py`); and plan
revisions continue far above all that a device may hold. It stands in this part because it needs commands and schedules.
"""

from __future__ import annotations

from typing import Final

from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent
from domain.kernel.ids import DeviceId
from domain.kernel.life import DatabaseLife, LifeCause, StoredLife
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.ports import SchedulesTx

PLAN_REVISIONS_SKIPPED: Final = 1_000
"""More than a plan changes between two backups."""
PAGE_SIZE: Final = 500
WHAT_HAPPENED: Final = {
    LifeCause.BACKUP: "The service runs on a copy that `latchboard backup` made",
    LifeCause.RESTORE: "A backup was put in place of the database",
    LifeCause.FAILOVER: "The database has gone back: a standby took over that did not have the last changes",
}


@service
class LifeRecovery:
    uow: UnitOfWork[SchedulesTx]
    clock: Clock
    life: DatabaseLife

    async def load(self) -> None:
        """Read the life. Raises Unavailable."""
        async with self.uow.read(one_statement=True) as tx:
            self.life.adopt(await tx.life.get())

    async def recover(self) -> LifeCause | None:
        """Draw the consequences of a pending life, once for all processes, and record it in the log of each account. Call it
        before anything is sent. Returns the cause if this call did it. Raises Unavailable."""
        cause = self.life.pending
        if cause is None:
            return None
        now_ms = self.clock.now_ms()
        after = StoredLife(self.life.current, self.life.began_ms or now_ms)
        async with self.uow.write(caller=None) as tx:
            is_first = await tx.life.mark_recovered(after.life, after.began_ms)
            if is_first:
                await self._mark_queued(tx, now_ms)
                await tx.devices.skip_plan_revisions(PLAN_REVISIONS_SKIPPED)
                for account_id in await tx.accounts.list_ids():
                    text = f"{WHAT_HAPPENED[cause]}. What was changed since then is not known here."
                    data = {"cause": cause.value, "beganAt": after.began_ms}
                    tx.emit(DomainEvent(account_id, "database_restored", text, now_ms, "service", data=data))
        await self.load()
        return cause if is_first else None

    async def _mark_queued(self, tx: SchedulesTx, now_ms: int) -> None:
        after_seq = 0
        while page := await tx.executions.list_queued(PAGE_SIZE, after_seq):
            devices: set[DeviceId] = {execution.device_id for execution in page}
            await tx.executions.mark_possibly_sent(now_ms, devices)
            after_seq = page[-1].seq
