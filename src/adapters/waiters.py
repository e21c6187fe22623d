"""Requests in this process that wait for a command's result, or for the decision on an approval: one future each, resolved after
the commit.

Nothing is stored for what nobody waits for. When all places are taken, the request is not rejected, because the command is
already queued: the response contains the current status. A waiter reads the database after it starts to watch, so that nothing
is missed in between, and again at its timeout, for what another instance has stored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Generic, TypeVar

from domain.approvals.model import Approval
from domain.commands.model import Execution
from domain.kernel.dataclasses import service
from domain.kernel.ids import ApprovalId, ExecutionId

MAX_WATCHERS = 10_000
"""Each is an open request."""
MAX_WATCHERS_PER_CALLER = 1_000
"""So that no caller can take all places."""

Key = TypeVar("Key", bound=str)
Value = TypeVar("Value")


class FutureResultWaitHandle(Generic[Value]):
    """`future` None: no place was free."""

    def __init__(self, future: asyncio.Future[Value] | None) -> None:
        self._future = future

    async def wait(self, timeout_s: float) -> Value | None:
        if self._future is None:
            return None
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return self._future.result() if done else None


@service
class InProcessWaiter(Generic[Key, Value]):
    max_watchers: int = MAX_WATCHERS
    max_watchers_per_caller: int = MAX_WATCHERS_PER_CALLER
    watcher_count: int = field(default=0, init=False)
    _watchers_by_caller: Counter[str] = field(default_factory=Counter, init=False)
    _futures: dict[Key, list[asyncio.Future[Value]]] = field(default_factory=dict, init=False)

    def resolve(self, key: Key, value: Value) -> None:
        for future in self._futures.get(key, ()):
            if not future.done():
                future.set_result(value)

    def has_waiters(self, key: Key) -> bool:
        return key in self._futures

    @contextmanager
    def watch(self, key: Key, by: str) -> Iterator[FutureResultWaitHandle[Value]]:
        if self.watcher_count >= self.max_watchers or self._watchers_by_caller[by] >= self.max_watchers_per_caller:
            yield FutureResultWaitHandle(None)
            return
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        self.watcher_count += 1
        self._watchers_by_caller[by] += 1
        try:
            yield FutureResultWaitHandle(future)
        finally:
            self.watcher_count -= 1
            self._watchers_by_caller[by] -= 1
            if not self._watchers_by_caller[by]:
                del self._watchers_by_caller[by]
            futures = self._futures[key]
            futures.remove(future)
            if not futures:
                del self._futures[key]


class InProcessExecutionWaiter(InProcessWaiter[ExecutionId, Execution]):
    def notify(self, execution: Execution) -> None:
        self.resolve(execution.execution_id, execution)


class InProcessApprovalWaiter(InProcessWaiter[ApprovalId, Approval]):
    def notify(self, approval: Approval) -> None:
        self.resolve(approval.approval_id, approval)
