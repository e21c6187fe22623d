"""Seals the event log once an hour."""

from __future__ import annotations

from dataclasses import field

from app.workers.due_task_worker import DueTaskWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.audit.seals import AuditSealService
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service


@service
class AuditSealWorker(DueTaskWorker):
    name = "audit_seals"

    seals: AuditSealService
    clock: Clock
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)

    async def run_once(self) -> float:
        due_ms = await self.seals.next_due_ms()
        if due_ms <= self.clock.now_ms():
            await self.seals.seal()
            due_ms = await self.seals.next_due_ms()
        return seconds_until(due_ms, self.clock.now_ms())
