"""Asks all the time whether this instance reaches the cluster's log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from domain.partitions.liveness import InboundLogReachabilityMonitor

INTERVAL_S = 0.5
TIMEOUT_S = 1.0


class InboundLogProbeWorker:
    name = "log_probe"

    def __init__(self, reaches_log: Callable[[float], Awaitable[bool]], meter: InboundLogReachabilityMonitor) -> None:
        """`reaches_log` gets the seconds to wait for an answer. It must not raise."""
        self._reaches_log = reaches_log
        self._meter = meter

    async def run(self) -> None:
        self._meter.on_answer()  # the log was opened; what came after that does not count as its silence
        while True:
            if await self._reaches_log(TIMEOUT_S):
                self._meter.on_answer()
            await asyncio.sleep(INTERVAL_S)
