"""Waits on a standby instance until it becomes leader, then takes over the devices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger("standby")


class StandbyTakeoverWorker:
    name = "standby"

    def __init__(self, leadership_acquired: asyncio.Event, become_leader: Callable[[], Awaitable[object]]) -> None:
        self._leadership_acquired = leadership_acquired
        self._become_leader = become_leader

    async def run(self) -> None:
        """The supervisor retries after a failure. Until it succeeds, devices cannot connect, and `/readyz` shows the error."""
        await self._leadership_acquired.wait()
        log.info("this instance is now the leader")
        await self._become_leader()
        await asyncio.Event().wait()
