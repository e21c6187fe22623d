"""A request waits for the engine's turnstile with an end."""

from __future__ import annotations

import asyncio

import pytest

from app.runtime.timeout_lock import TimeoutLock
from domain.kernel.errors import Unavailable


async def test_who_waits_too_long_is_told_to_come_back_and_the_lock_stays_its_holders() -> None:
    lock = asyncio.Lock()
    patient = TimeoutLock(lock, patience_s=0.02)
    async with lock:
        with pytest.raises(Unavailable):
            await patient.__aenter__()
        assert lock.locked()
    async with patient:
        assert lock.locked()
    assert not lock.locked()
