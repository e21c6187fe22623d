"""Expires approvals that nobody decided in time; each expires once, on whichever instance is first.

The worker wakes when a command begins to wait for approval, and at the earliest expiry.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from app.workers.due_task_worker import DueTaskWorker, seconds_until
from domain.approvals.service import ApprovalService
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service


@service
class ApprovalExpiryWorker(DueTaskWorker):
    name = "approvals"

    approvals: ApprovalService[Any]
    clock: Clock
    pending_count: int = field(default=0, init=False)
    """Approvals that waited at the last run, in all accounts."""

    async def run_once(self) -> float:
        while await self.approvals.expire_due():
            pass
        self.pending_count = await self.approvals.count_pending()
        return seconds_until(await self.approvals.next_expiry_ms(), self.clock.now_ms())
