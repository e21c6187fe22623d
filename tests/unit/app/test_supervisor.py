from __future__ import annotations

import asyncio
from unittest.mock import MagicMock

import pytest

from app.runtime import supervisor
from app.runtime.supervisor import Supervisor
from domain.kernel.backoff import Backoff
from domain.kernel.errors import Unavailable

WITHIN_S = 5.0


class Stumbling:
    """Fails so many times, then works."""

    def __init__(self, name: str = "stumbling", failures: int = 1, error: Exception | None = None) -> None:
        self.name = name
        self._error = error or ValueError("stumbled")
        self.starts = 0
        self.working = asyncio.Event()
        self.finished = False
        self._failures = failures

    async def run(self) -> None:
        self.starts += 1
        if self.starts <= self._failures:
            raise self._error
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.finished = True


class Returning:
    name = "returning"

    def __init__(self) -> None:
        self.starts = 0

    async def run(self) -> None:
        self.starts += 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_BACKOFF", Backoff((0.001,)))
    monkeypatch.setattr(supervisor, "log", MagicMock())  # drawing tracebacks takes longer than all of it


async def test_a_worker_that_fails_is_started_again_and_reported() -> None:
    loop = Stumbling(failures=3)
    watched = Supervisor([loop])
    watched.start()
    await asyncio.wait_for(loop.working.wait(), WITHIN_S)
    assert loop.starts == 4
    assert watched.supervised[0].failures == 3
    assert watched.current_errors() == {"stumbling": "ValueError: stumbled"}
    await watched.stop()


async def test_a_worker_that_has_run_steadily_is_healthy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STABLE_AFTER_S", 0.01)
    loop = Stumbling()
    watched = Supervisor([loop])
    watched.start()
    await asyncio.wait_for(loop.working.wait(), WITHIN_S)
    async with asyncio.timeout(WITHIN_S):
        while watched.current_errors():
            await asyncio.sleep(0.01)
    await watched.stop()


async def test_a_worker_that_returns_counts_as_failed() -> None:
    loop = Returning()
    watched = Supervisor([loop])
    watched.start()
    async with asyncio.timeout(WITHIN_S):
        while loop.starts < 2:
            await asyncio.sleep(0.001)
    assert "returned" in watched.current_errors()["returning"]
    await watched.stop()


async def test_stopping_lets_each_worker_finish_what_it_has_in_hand() -> None:
    loops = [Stumbling(str(number), failures=0) for number in range(3)]
    watched = Supervisor(loops)
    watched.start()
    for loop in loops:
        await asyncio.wait_for(loop.working.wait(), WITHIN_S)
    await watched.stop()
    assert all(loop.finished for loop in loops)


async def test_a_worker_that_only_fails_is_given_up_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_CONSECUTIVE_FAILURES", 5)
    hopeless, troubled = Stumbling("hopeless", failures=1_000_000), Stumbling("troubled", failures=3)
    watched = Supervisor([troubled, hopeless])
    watched.start()
    await asyncio.wait_for(watched.shutdown_requested.wait(), WITHIN_S)
    assert hopeless.starts >= 5
    assert troubled.working.is_set()
    await watched.stop()


async def test_failures_far_apart_are_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_CONSECUTIVE_FAILURES", 2)
    monkeypatch.setattr(supervisor, "STABLE_AFTER_S", 0.0)
    loop = Stumbling(failures=4)
    watched = Supervisor([loop])
    watched.start()
    await asyncio.wait_for(loop.working.wait(), WITHIN_S)
    assert not watched.shutdown_requested.is_set()
    await watched.stop()


async def test_what_is_lacking_from_outside_is_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_CONSECUTIVE_FAILURES", 2)
    loop = Stumbling(failures=4, error=Unavailable("The database is away."))
    watched = Supervisor([loop])
    watched.start()
    await asyncio.wait_for(loop.working.wait(), WITHIN_S)
    assert not watched.shutdown_requested.is_set()
    await watched.stop()
