"""The retention service deletes rows after their retention period."""

from __future__ import annotations

from typing import Any

import pytest

from domain.approvals.model import ApprovalStatus
from domain.kernel.clock import DAY_MS
from domain.sign_in.model import LoginFailures
from domain.telemetry.retention import RetentionPeriods, RetentionService
from support.manual_clock import ManualClock
from support.storage import MemoryUnitOfWork, an_approval, populate

KNOWN_ADDRESS, FAILURES = "known:ada@example.org|203.0.113.1", "email:ada@example.org"


async def _remaining_after(days: float) -> set[str]:
    clock: Any = ManualClock()
    uow: Any = MemoryUnitOfWork()
    now_ms = clock.now_ms()
    async with uow.write() as tx:
        for subject in (KNOWN_ADDRESS, FAILURES):
            await tx.login_failures.upsert(LoginFailures(subject, 1, now_ms, now_ms))
    clock.forward(int(days * DAY_MS) + 1)
    async for _ in RetentionService(uow=uow, clock=clock, periods=RetentionPeriods()).purge_steps():
        pass
    async with uow.read() as tx:
        return {subject for subject in (KNOWN_ADDRESS, FAILURES) if await tx.login_failures.get_for_update(subject) is not None}


async def test_known_login_addresses_are_kept_for_30_days_and_login_failures_for_one() -> None:
    assert await _remaining_after(0.9) == {KNOWN_ADDRESS, FAILURES}
    assert await _remaining_after(1) == {KNOWN_ADDRESS}
    assert await _remaining_after(29.9) == {KNOWN_ADDRESS}
    assert await _remaining_after(30) == set()


async def test_a_round_deletes_all_expired_approvals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetentionService, "EVENTS_PER_STEP", 2)
    uow: Any = MemoryUnitOfWork()
    world = await populate(uow)
    expired = [an_approval(world, status=ApprovalStatus.EXPIRED) for _ in range(5)]
    async with uow.write() as tx:
        for approval in expired:
            await tx.approvals.add(approval)
    clock: Any = ManualClock(expired[0].created_ms + 365 * DAY_MS + 1)
    deleted = [number async for number in RetentionService(uow=uow, clock=clock, periods=RetentionPeriods()).purge_steps()]
    assert sum(deleted) == 5
    assert max(deleted) == 2
