"""How long things are kept, by the retention service over real values."""

from __future__ import annotations

from typing import Any

from domain.accounts.model import LoginFailures
from domain.kernel.clock import DAY_MS
from domain.telemetry.retention import RetentionPeriods, RetentionService
from support.device_world import FakeClock
from support.storage import MemoryUnitOfWork

PLACE, COUNT = "known:ada@example.org|203.0.113.1", "email:ada@example.org"


async def _kept_after(days: float) -> set[str]:
    clock: Any = FakeClock()
    uow: Any = MemoryUnitOfWork()
    now_ms = clock.now_ms()
    async with uow.write() as tx:
        for subject in (PLACE, COUNT):
            await tx.login_failures.upsert(LoginFailures(subject, 1, now_ms, now_ms))
    clock.forward(int(days * DAY_MS) + 1)
    async for _ in RetentionService(uow=uow, clock=clock, periods=RetentionPeriods()).purge_steps():
        pass
    async with uow.read() as tx:
        return {subject for subject in (PLACE, COUNT) if await tx.login_failures.get_for_update(subject) is not None}


async def test_where_somebody_signed_in_is_remembered_for_thirty_days_and_failures_for_one() -> None:
    assert await _kept_after(0.9) == {PLACE, COUNT}
    assert await _kept_after(1) == {PLACE}
    assert await _kept_after(29.9) == {PLACE}
    assert await _kept_after(30) == set()
