"""What `/readyz` answers: errors, which make it 503, and warnings, which do not. It answers within seconds, whatever hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from domain.kernel.errors import Unavailable

PROBE_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 3.0


class CachedReadinessProbe:
    """Runs a check that raises Unavailable, at most once a second: it writes to the database, and anybody may poll `/readyz`."""

    def __init__(
        self, check: Callable[[], Awaitable[None]], *, interval_s: float = PROBE_INTERVAL_S, timeout_s: float = PROBE_TIMEOUT_S
    ) -> None:
        self._check = check
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._running: asyncio.Task[str | None] | None = None
        self._lock = asyncio.Lock()
        self._next_at = float("-inf")
        self._error: str | None = None

    async def error(self) -> str | None:
        """The error of the last check; None if it succeeded. Concurrent callers share one check."""
        async with self._lock:
            if time.monotonic() >= self._next_at:
                self._error = await self._bounded()
                self._next_at = time.monotonic() + self._interval_s
            return self._error

    async def _bounded(self) -> str | None:
        """A check that takes too long goes on, and the next call waits for it too: it may hold the last connection."""
        running = self._running = self._running or asyncio.create_task(self._run())
        done, _ = await asyncio.wait([running], timeout=self._timeout_s)
        if not done:
            return f"It has not answered within {self._timeout_s:g} seconds."
        self._running = None
        return running.result()

    async def _run(self) -> str | None:
        try:
            await self._check()
        except Unavailable as error:
            return error.message
        return None
