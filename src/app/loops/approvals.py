"""Approvals nobody decided: expired at their time, once, whichever instance gets there first.

Woken by the bell (a command began to wait) or by the earliest expiry; between these it sleeps.
"""

from __future__ import annotations

import asyncio

import structlog

from app.loops.doorbell import Doorbell
from domain.approvals.service import ApprovalService
from domain.kernel.clock import Clock

LONGEST_SLEEP_S = 30.0
"""The wall clock may be set while we sleep, and another instance may add what we must expire."""
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)

log = structlog.get_logger("approvals")


class ApprovalLoop:
    name = "approvals"

    def __init__(self, *, approvals: ApprovalService, clock: Clock, bell: Doorbell) -> None:
        self._approvals = approvals
        self._clock = clock
        self._bell = bell
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                sleep_s = await self._work()
                attempt = 0
            except Exception as error:
                self.failures += 1
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                log.warning("approvals wait to expire", error=repr(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            await self._bell.wait(sleep_s)

    async def _work(self) -> float:
        """Expire all that is due; returns for how long there is nothing, in seconds."""
        while await self._approvals.expire_due():
            pass
        due_ms = await self._approvals.next_expiry_ms()
        if due_ms is None:
            return LONGEST_SLEEP_S
        return min(max(0.001, (due_ms - self._clock.now_ms()) / 1000), LONGEST_SLEEP_S)
