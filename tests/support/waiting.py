"""How long tests wait for what must happen, and what they say when it does not."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

Seen = TypeVar("Seen")
TIMEOUT_S = 90.0
"""Of each such wait. Only a test that fails waits this long, so it leaves room for a machine with ten times its load."""

OPERATION_TIMEOUT_S = 15.0
"""Of one try that is repeated until TIMEOUT_S: a try that can never succeed must not use up the time of all."""


async def loop_turns(count: int = 200) -> None:
    """Let the other tasks go on until they wait. With the storage in memory this needs turns of the loop, and no time."""
    for _ in range(count):
        await asyncio.sleep(0)


async def eventually(holds: Callable[[], bool | Awaitable[bool]], *, within_s: float = TIMEOUT_S) -> None:
    """Look until it holds; for what the test's own event loop makes true."""
    async with asyncio.timeout(within_s):
        while not (await found if inspect.isawaitable(found := holds()) else found):
            await asyncio.sleep(0.001)


class Loop(Protocol):
    async def run(self) -> None: ...


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[None]:
    """A worker's loop, for the block. That it ends when it is cancelled is checked too."""
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=TIMEOUT_S)
        assert task.cancelled()


async def until(look: Callable[[], Awaitable[Seen]], holds: Callable[[Seen], object], *, within_s: float = TIMEOUT_S) -> Seen:
    """Look until it holds; returns what was seen. Fails with what was seen last."""
    seen: list[Seen] = []
    try:
        async with asyncio.timeout(within_s):
            while True:
                seen = [await look()]
                if holds(seen[0]):
                    return seen[0]
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not seen within {within_s} s; seen last: {seen}") from None
