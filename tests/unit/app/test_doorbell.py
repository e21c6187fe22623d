from __future__ import annotations

import asyncio

from app.workers.wake_event import WakeEvent


async def test_a_bell_rung_before_anybody_waits_is_heard() -> None:
    bell = WakeEvent()
    bell.set()
    assert await bell.wait(5)


async def test_a_bell_rung_twice_is_heard_once() -> None:
    bell = WakeEvent()
    bell.set()
    bell.set()
    assert await bell.wait(5)
    assert not await bell.wait(0.001)


async def test_who_waits_is_woken() -> None:
    bell = WakeEvent()
    waiting = asyncio.create_task(bell.wait(None))
    await asyncio.sleep(0)
    bell.set()
    assert await asyncio.wait_for(waiting, 5)
