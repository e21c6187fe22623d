"""Callers that wait for a result are notified; callers over the limit do not wait and do not block others."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any, cast

from adapters.waiters import InProcessExecutionWaiter
from domain.commands.model import Execution
from domain.kernel.ids import ExecutionId
from support.waiting import TIMEOUT_S


class Ended:
    """As much of an execution as is told."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = ExecutionId(execution_id)


async def test_all_waiters_are_notified_when_the_execution_ends() -> None:
    outcomes, done = InProcessExecutionWaiter(), cast(Execution, Ended("exe_1"))
    with outcomes.watch(done.execution_id, "user:1") as one, outcomes.watch(done.execution_id, "user:2") as other:
        assert outcomes.has_waiters(done.execution_id)
        outcomes.notify(done)
        assert [await one.wait(1), await other.wait(1)] == [done, done]
    assert not outcomes.has_waiters(done.execution_id)


async def test_a_caller_with_too_many_waits_does_not_block_others() -> None:
    outcomes = InProcessExecutionWaiter(max_watchers=4, max_watchers_per_caller=2)
    with ExitStack() as held:

        def watch(number: int, by: str) -> Any:
            return held.enter_context(outcomes.watch(ExecutionId(f"exe_{number}"), by))

        greedy = [watch(number, "apikey:1") for number in range(5)]
        modest = watch(5, "user:1")
        assert outcomes.watcher_count == 3
        async with asyncio.timeout(TIMEOUT_S):
            assert [await one.wait(30) for one in greedy[2:]] == [None] * 3
        done = cast(Execution, Ended("exe_5"))
        outcomes.notify(done)
        assert await modest.wait(1) is done
        more = [watch(6, "user:2"), watch(7, "user:3")]
        async with asyncio.timeout(TIMEOUT_S):
            assert await more[1].wait(30) is None
    assert (outcomes.watcher_count, outcomes._watchers_by_caller) == (0, {})
