"""Callers that wait for a command's result, in this process: one future for each, told after the commit.

Nothing is kept for an execution that nobody waits for. The command is on its way already when somebody wants to wait, so who
finds no place is not refused: the answer says how it stands. Who waits looks into the database after it has begun to watch, so
that a result between the two is not missed, and again when its time is up, for a result that another instance received.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from domain.commands.model import Execution
from domain.kernel.ids import ExecutionId

MAX_WATCHERS = 10_000
"""Each is a request that is held open."""
MAX_WATCHERS_PER_CALLER = 1_000
"""Of one caller, so that none keeps the others from waiting."""


class FutureExecutionWatch:
    """`future` None: there was no place to wait."""

    def __init__(self, future: asyncio.Future[Execution] | None) -> None:
        self._future = future

    async def wait(self, timeout_s: float) -> Execution | None:
        if self._future is None:
            return None
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return self._future.result() if done else None


class InProcessExecutionWaiter:
    def __init__(self, *, most: int = MAX_WATCHERS, most_of_one: int = MAX_WATCHERS_PER_CALLER) -> None:
        self._max_watchers = most
        self._max_watchers_per_caller = most_of_one
        self._watchers_by_caller: Counter[str] = Counter()
        self._futures: dict[ExecutionId, list[asyncio.Future[Execution]]] = {}
        self.watcher_count = 0

    def notify(self, execution: Execution) -> None:
        for future in self._futures.get(execution.execution_id, ()):
            if not future.done():
                future.set_result(execution)

    def has_waiters(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._futures

    @contextmanager
    def watch(self, execution_id: ExecutionId, by: str) -> Iterator[FutureExecutionWatch]:
        if self.watcher_count >= self._max_watchers or self._watchers_by_caller[by] >= self._max_watchers_per_caller:
            yield FutureExecutionWatch(None)
            return
        future: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(execution_id, []).append(future)
        self.watcher_count += 1
        self._watchers_by_caller[by] += 1
        try:
            yield FutureExecutionWatch(future)
        finally:
            self.watcher_count -= 1
            self._watchers_by_caller[by] -= 1
            if not self._watchers_by_caller[by]:
                del self._watchers_by_caller[by]
            waiting = self._futures[execution_id]
            waiting.remove(future)
            if not waiting:
                del self._futures[execution_id]
