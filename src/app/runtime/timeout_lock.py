"""A lock that a request waits for with an end: whoever does not get it in time is told to come back."""

from __future__ import annotations

import asyncio
from types import TracebackType

from domain.kernel.errors import Unavailable


class TimeoutLock:
    """The domain's `Turnstile` for requests, over a lock that a worker holds for as long as it must."""

    def __init__(self, lock: asyncio.Lock, patience_s: float = 5.0) -> None:
        self._lock = lock
        self._timeout_s = patience_s

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable("The service is busy storing telemetry. Try again in a moment.") from None

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()
