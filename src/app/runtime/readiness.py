"""What `/readyz` answers: errors, which make it 503, and warnings, which do not. It answers within seconds, whatever hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import field

from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable


@service
class CachedReadinessProbe:
    """Runs a check that raises Unavailable, at most once a second: it writes to the database, and anybody may poll `/readyz`."""

    check: Callable[[], Awaitable[None]]
    interval_s: float = 1.0
    timeout_s: float = 3.0
    _running: asyncio.Task[str | None] | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _next_at: float = field(default=float("-inf"), init=False)
    _error: str | None = field(default=None, init=False)

    async def error(self) -> str | None:
        """The error of the last check; None if it succeeded. Concurrent callers share one check."""
        async with self._lock:
            if time.monotonic() >= self._next_at:
                self._error = await self._bounded()
                self._next_at = time.monotonic() + self.interval_s
            return self._error

    async def _bounded(self) -> str | None:
        """A check that takes too long goes on, and the next call waits for it too: it may hold the last connection."""
        running = self._running = self._running or asyncio.create_task(self._run())
        done, _ = await asyncio.wait([running], timeout=self.timeout_s)
        if not done:
            return f"It has not answered within {self.timeout_s:g} seconds."
        self._running = None
        return running.result()

    async def _run(self) -> str | None:
        try:
            await self.check()
        except Unavailable as error:
            return error.message
        return None
