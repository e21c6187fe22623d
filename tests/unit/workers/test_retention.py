"""The retention worker deletes what has expired, then releases its space step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.workers import retention
from app.workers.due import WakeEvent
from app.workers.retention import RetentionWorker
from domain.kernel.errors import Unavailable
from support.device import cancel_tasks
from support.waiting import TIMEOUT_S


class FakeRetention:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def purge_steps(self) -> AsyncIterator[int]:
        for _ in range(2):
            self._log.append("purge")
            yield 10


@pytest.mark.parametrize("error", [None, Unavailable("busy")])
async def test_space_is_released_after_the_deletion_until_there_is_no_more(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    log: list[str] = []
    left = [256, 256, 0]
    wake_event = WakeEvent()

    async def release_space() -> int:
        log.append("release")
        if error is not None:
            raise error
        return left.pop(0)

    fake: Any = FakeRetention(log)
    worker = RetentionWorker(retention=fake, release_space=release_space, wake_event=wake_event)
    wake_event.set()
    task = asyncio.create_task(worker.run())
    expected = ["purge", "purge", "release"] if error else ["purge", "purge", "release", "release", "release"]
    async with asyncio.timeout(TIMEOUT_S):
        while len(log) < len(expected):
            await asyncio.sleep(0)
    assert (log, worker.deleted_rows, task.done()) == (expected, 20, False)
    await cancel_tasks(task)


async def test_nothing_is_deleted_while_the_clock_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)
    monkeypatch.setattr(retention, "CLOCK_INTERVAL_S", 0.0)
    log: list[str] = []
    looks = iter([False, False, True, False, True, True])
    """At the begin, then after each step: the clock jumps while the first one deletes."""

    def is_certain() -> bool:
        found = next(looks)
        log.append("certain" if found else "doubt")
        return found

    released = asyncio.Event()

    async def release_space() -> int:
        released.set()
        return 0

    fake: Any = FakeRetention(log)
    wake_event = WakeEvent()
    worker = RetentionWorker(retention=fake, release_space=release_space, wake_event=wake_event, is_clock_certain=is_certain)
    wake_event.set()
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(TIMEOUT_S):
        await released.wait()
    assert log == ["doubt", "doubt", "certain", "purge", "doubt", "certain", "purge", "certain"]
    await cancel_tasks(task)
