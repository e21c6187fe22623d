"""Requests in this process that wait for a command's result: one future each, resolved after the commit.

Nothing is stored for an execution without waiters. When all places are taken, the request is not rejected, because the command is
already queued: the response contains the current status. A waiter reads the database after it starts to watch, so that no result
is missed in between, and again at its timeout, for a result that another instance received.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from domain.commands.model import Execution
from domain.kernel.ids import ExecutionId

MAX_WATCHERS = 10_000
"""Each is an open request."""
MAX_WATCHERS_PER_CALLER = 1_000
"""So that no caller can take all places."""


class FutureExecutionWatch:
    """`future` None: no place was free."""

    def __init__(self, future: asyncio.Future[Execution] | None) -> None:
        self._future = future

    async def wait(self, timeout_s: float) -> Execution | None:
        if self._future is None:
            return None
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return self._future.result() if done else None


class InProcessExecutionWaiter:
    def __init__(self, *, max_watchers: int = MAX_WATCHERS, max_watchers_per_caller: int = MAX_WATCHERS_PER_CALLER) -> None:
        self._max_watchers = max_watchers
        self._max_watchers_per_caller = max_watchers_per_caller
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
            futures = self._futures[execution_id]
            futures.remove(future)
            if not futures:
                del self._futures[execution_id]
