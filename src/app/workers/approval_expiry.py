"""Approvals nobody decided: expired at their time, once, whichever instance gets there first.

Woken by the bell (a command began to wait) or by the earliest expiry; between these it sleeps.
"""

from __future__ import annotations

from typing import Any

from app.workers.base_worker import DueWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.approvals.service import ApprovalService
from domain.kernel.clock import Clock


class ApprovalExpiryWorker(DueWorker):
    name = "approvals"

    def __init__(self, *, approvals: ApprovalService[Any], clock: Clock, bell: WakeEvent) -> None:
        self._approvals = approvals
        self._clock = clock
        super().__init__(bell)

    async def run_once(self) -> float:
        """Expire all that is due; returns for how long there is nothing, in seconds."""
        while await self._approvals.expire_due():
            pass
        due_ms = await self._approvals.next_expiry_ms()
        return seconds_until(due_ms, self._clock.now_ms())
