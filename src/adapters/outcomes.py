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

MOST = 10_000
"""Each is a request that is held open."""
MOST_OF_ONE = 1_000
"""Of one caller, so that none keeps the others from waiting."""


class FutureWatch:
    """`future` None: there was no place to wait."""

    def __init__(self, future: asyncio.Future[Execution] | None) -> None:
        self._future = future

    async def wait(self, timeout_s: float) -> Execution | None:
        if self._future is None:
            return None
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return self._future.result() if done else None


class InProcessOutcomes:
    def __init__(self, *, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._by: Counter[str] = Counter()
        self._watched: dict[ExecutionId, list[asyncio.Future[Execution]]] = {}
        self.watchers = 0

    def announce(self, execution: Execution) -> None:
        for future in self._watched.get(execution.execution_id, ()):
            if not future.done():
                future.set_result(execution)

    def awaited(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._watched

    @contextmanager
    def watch(self, execution_id: ExecutionId, by: str) -> Iterator[FutureWatch]:
        if self.watchers >= self._most or self._by[by] >= self._most_of_one:
            yield FutureWatch(None)
            return
        future: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._watched.setdefault(execution_id, []).append(future)
        self.watchers += 1
        self._by[by] += 1
        try:
            yield FutureWatch(future)
        finally:
            self.watchers -= 1
            self._by[by] -= 1
            if not self._by[by]:
                del self._by[by]
            waiting = self._watched[execution_id]
            waiting.remove(future)
            if not waiting:
                del self._watched[execution_id]
