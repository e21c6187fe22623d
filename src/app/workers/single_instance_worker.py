"""Runs a worker on one instance of a cluster at a time: the owner of partition 0.

For a moment two instances may both believe that they are it. So this is for workers that do no harm when they run twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from app.runtime.worker_supervisor import BackgroundWorker

CHECK_INTERVAL_S = 1.0


class SingleInstanceWorker:
    def __init__(self, worker: BackgroundWorker, is_chosen: Callable[[], bool]) -> None:
        self.name = worker.name
        self._worker = worker
        self._is_chosen = is_chosen

    async def run(self) -> None:
        while True:
            if self._is_chosen():
                await self._run_while_chosen()
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _run_while_chosen(self) -> None:
        """Raises what the worker raises."""
        running = asyncio.create_task(self._worker.run(), name=self.name)
        try:
            while self._is_chosen():
                done, _ = await asyncio.wait([running], timeout=CHECK_INTERVAL_S)
                if done:
                    return running.result()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running
