"""Workers are restarted and reported, and stop the program when they keep failing; the engine commit lock is waited for a bounded time."""

from __future__ import annotations

import asyncio
from unittest.mock import MagicMock

import pytest

from app.runtime import supervisor as supervisor_module
from app.runtime.supervisor import LockWithTimeout, WorkerSupervisor
from domain.kernel.backoff import Backoff
from domain.kernel.errors import Unavailable
from support.waiting import TIMEOUT_S


class FailingWorker:
    """Fails `failures` times, then works until cancelled."""

    def __init__(self, name: str = "failing", failures: int = 1, error: Exception | None = None) -> None:
        self.name = name
        self._error = error or ValueError("broken")
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


class ReturningWorker:
    name = "returning"

    def __init__(self) -> None:
        self.starts = 0

    async def run(self) -> None:
        self.starts += 1


@pytest.fixture(autouse=True)
def fast_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "RESTART_BACKOFF", Backoff((0.001,)))
    monkeypatch.setattr(supervisor_module, "log", MagicMock())  # rendering tracebacks takes longer than the tests


async def test_a_worker_that_fails_is_restarted_and_reported() -> None:
    worker = FailingWorker(failures=3)
    supervisor = WorkerSupervisor([worker])
    supervisor.start()
    await asyncio.wait_for(worker.working.wait(), TIMEOUT_S)
    assert worker.starts == 4
    assert supervisor.supervised[0].failures == 3
    assert supervisor.current_errors() == {"failing": "ValueError: broken"}
    await supervisor.stop()


async def test_a_worker_that_has_run_for_a_while_is_healthy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "STABLE_AFTER_S", 0.01)
    worker = FailingWorker()
    supervisor = WorkerSupervisor([worker])
    supervisor.start()
    await asyncio.wait_for(worker.working.wait(), TIMEOUT_S)
    async with asyncio.timeout(TIMEOUT_S):
        while supervisor.current_errors():
            await asyncio.sleep(0.01)
    await supervisor.stop()


async def test_a_worker_that_returns_counts_as_failed() -> None:
    worker = ReturningWorker()
    supervisor = WorkerSupervisor([worker])
    supervisor.start()
    async with asyncio.timeout(TIMEOUT_S):
        while worker.starts < 2:
            await asyncio.sleep(0.001)
    assert "returned" in supervisor.current_errors()["returning"]
    await supervisor.stop()


async def test_a_stop_lets_each_worker_clean_up() -> None:
    workers = [FailingWorker(str(number), failures=0) for number in range(3)]
    supervisor = WorkerSupervisor(workers)
    supervisor.start()
    for worker in workers:
        await asyncio.wait_for(worker.working.wait(), TIMEOUT_S)
    await supervisor.stop()
    assert all(worker.finished for worker in workers)


async def test_a_worker_that_keeps_failing_requests_a_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "MAX_CONSECUTIVE_FAILURES", 5)
    broken, recovering = FailingWorker("broken", failures=1_000_000), FailingWorker("recovering", failures=3)
    supervisor = WorkerSupervisor([recovering, broken])
    supervisor.start()
    await asyncio.wait_for(supervisor.shutdown_requested.wait(), TIMEOUT_S)
    assert broken.starts >= 5
    assert recovering.working.is_set()
    await supervisor.stop()


async def test_failures_with_stable_runs_in_between_request_no_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "MAX_CONSECUTIVE_FAILURES", 2)
    monkeypatch.setattr(supervisor_module, "STABLE_AFTER_S", 0.0)
    worker = FailingWorker(failures=4)
    supervisor = WorkerSupervisor([worker])
    supervisor.start()
    await asyncio.wait_for(worker.working.wait(), TIMEOUT_S)
    assert not supervisor.shutdown_requested.is_set()
    await supervisor.stop()


async def test_an_unavailable_database_requests_no_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "MAX_CONSECUTIVE_FAILURES", 2)
    worker = FailingWorker(failures=4, error=Unavailable("The database does not answer."))
    supervisor = WorkerSupervisor([worker])
    supervisor.start()
    await asyncio.wait_for(worker.working.wait(), TIMEOUT_S)
    assert not supervisor.shutdown_requested.is_set()
    await supervisor.stop()


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
