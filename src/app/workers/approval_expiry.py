"""Expires approvals that nobody decided in time; each expires once, on whichever instance is first.

The worker wakes when a command begins to wait for approval, and at the earliest expiry.
"""

from __future__ import annotations

from typing import Any

from app.workers.base_worker import DueTaskWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.approvals.service import ApprovalService
from domain.kernel.clock import Clock


class ApprovalExpiryWorker(DueTaskWorker):
    name = "approvals"

    def __init__(self, *, approvals: ApprovalService[Any], clock: Clock, wake_event: WakeEvent) -> None:
        super().__init__(wake_event)
        self._approvals = approvals
        self._clock = clock
        self.pending_count = 0
        """Approvals that waited at the last run, in all accounts."""

    async def run_once(self) -> float:
        while await self._approvals.expire_due():
            pass
        self.pending_count = await self._approvals.count_pending()
        return seconds_until(await self._approvals.next_expiry_ms(), self._clock.now_ms())
