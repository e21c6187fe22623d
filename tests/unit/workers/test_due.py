"""The event that wakes a loop."""

from __future__ import annotations

import asyncio

from app.workers.due import WakeEvent
from support.waiting import TIMEOUT_S


async def test_an_event_set_before_the_wait_ends_the_wait_at_once() -> None:
    event = WakeEvent()
    event.set()
    assert await event.wait(5)


async def test_an_event_set_twice_wakes_once() -> None:
    event = WakeEvent()
    event.set()
    event.set()
    assert await event.wait(5)
    assert not await event.wait(0.001)


async def test_setting_the_event_wakes_the_waiting_task() -> None:
    event = WakeEvent()
    task = asyncio.create_task(event.wait(None))
    await asyncio.sleep(0)
    event.set()
    assert await asyncio.wait_for(task, TIMEOUT_S)
