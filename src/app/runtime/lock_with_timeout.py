"""A lock with an acquire timeout for requests."""

from __future__ import annotations

import asyncio
from types import TracebackType

from domain.kernel.errors import Unavailable


class LockWithTimeout:
    """Wraps a lock that a worker may hold for long. Entering raises Unavailable after `timeout_s`."""

    def __init__(self, lock: asyncio.Lock, timeout_s: float = 5.0) -> None:
        self._lock = lock
        self._timeout_s = timeout_s

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable("The service is busy storing telemetry. Try again in a moment.") from None

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()
