"""Approvals nobody decided: expired at their time, once, whichever instance gets there first.

Woken by the bell (a command began to wait) or by the earliest expiry; between these it sleeps.
"""

from __future__ import annotations

from app.loops.doorbell import Doorbell
from app.loops.waking import WakingLoop, until
from domain.approvals.service import ApprovalService
from domain.kernel.clock import Clock


class ApprovalLoop(WakingLoop):
    name = "approvals"

    def __init__(self, *, approvals: ApprovalService, clock: Clock, bell: Doorbell) -> None:
        self._approvals = approvals
        self._clock = clock
        super().__init__(bell)

    async def _work(self) -> float:
        """Expire all that is due; returns for how long there is nothing, in seconds."""
        while await self._approvals.expire_due():
            pass
        due_ms = await self._approvals.next_expiry_ms()
        return until(due_ms, self._clock.now_ms())
