"""Seals the event log once an hour."""

from __future__ import annotations

from app.workers.base_worker import DueTaskWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.audit.sealing import AuditSealService
from domain.kernel.clock import Clock


class AuditSealWorker(DueTaskWorker):
    name = "audit_seals"

    def __init__(self, *, seals: AuditSealService, clock: Clock) -> None:
        super().__init__(WakeEvent())
        self._seals = seals
        self._clock = clock

    async def run_once(self) -> float:
        due_ms = await self._seals.next_due_ms()
        if due_ms <= self._clock.now_ms():
            await self._seals.seal()
            due_ms = await self._seals.next_due_ms()
        return seconds_until(due_ms, self._clock.now_ms())
