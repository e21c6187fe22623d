"""Callers that wait for a command's result, in this process: one future for each, told after the commit.

Nothing is kept for an execution that nobody waits for. Who waits looks into the database after it has begun to watch, so that a
result between the two is not missed, and again when its time is up, for a result that another instance received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from domain.commands.model import Execution
from domain.kernel.errors import Unavailable
from domain.kernel.ids import ExecutionId

MAX_WATCHERS = 10_000
"""Each is a request that is held open."""


class FutureWatch:
    def __init__(self, future: asyncio.Future[Execution]) -> None:
        self._future = future

    async def wait(self, timeout_s: float) -> Execution | None:
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return self._future.result() if done else None


class InProcessOutcomes:
    def __init__(self) -> None:
        self._watched: dict[ExecutionId, list[asyncio.Future[Execution]]] = {}
        self.watchers = 0

    def announce(self, execution: Execution) -> None:
        for future in self._watched.get(execution.execution_id, ()):
            if not future.done():
                future.set_result(execution)

    def awaited(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._watched

    @contextmanager
    def watch(self, execution_id: ExecutionId) -> Iterator[FutureWatch]:
        if self.watchers >= MAX_WATCHERS:
            raise Unavailable("Too many requests wait for a result. Ask without waitSeconds and look at the execution.")
        future: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._watched.setdefault(execution_id, []).append(future)
        self.watchers += 1
        try:
            yield FutureWatch(future)
        finally:
            self.watchers -= 1
            waiting = self._watched[execution_id]
            waiting.remove(future)
            if not waiting:
                del self._watched[execution_id]
