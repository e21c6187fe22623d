"""The minute in which few denials of a caller are logged ends, also when the wall clock is set back meanwhile."""

from __future__ import annotations

from domain.events.denied_requests import MAX_LOGGED_PER_MINUTE, DenialLog
from domain.kernel.errors import PermissionDenied
from support.manual_clock import ManualClock
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.webhook_world import WebhookWorld


async def test_a_clock_that_is_set_back_suppresses_no_denials_for_longer_than_a_minute() -> None:
    uow, clock = MemoryUnitOfWork(), ManualClock()
    denials = DenialLog(uow=uow, clock=clock)
    session = (await WebhookWorld().populate()).session()

    async def deny(times: int) -> int:
        for _ in range(times):
            await denials.log_denied(session, "open the gate", PermissionDenied("No.", code="GRANT_MISSING"), {})
        return len(uow.emitted_events)

    assert await deny(MAX_LOGGED_PER_MINUTE + 2) == MAX_LOGGED_PER_MINUTE
    clock.step(minutes=-60)
    await denials.flush()
    assert len(uow.emitted_events) == MAX_LOGGED_PER_MINUTE
    clock.forward(minutes=1)
    await denials.flush()
    assert "2 more calls" in uow.emitted_events[-1].description
    assert await deny(1) == MAX_LOGGED_PER_MINUTE + 2
