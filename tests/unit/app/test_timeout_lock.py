"""A request waits for the engine commit lock for a bounded time."""

from __future__ import annotations

import asyncio

import pytest

from app.runtime.supervisor import LockWithTimeout
from domain.kernel.errors import Unavailable


async def test_a_request_that_waits_too_long_is_refused_and_the_holder_keeps_the_lock() -> None:
    lock = asyncio.Lock()
    timeout_lock = LockWithTimeout(lock, timeout_s=0.02)
    async with lock:
        with pytest.raises(Unavailable):
            await timeout_lock.__aenter__()
        assert lock.locked()
    async with timeout_lock:
        assert lock.locked()
    assert not lock.locked()
