"""Waits beside the instance that holds the devices, and takes them over when it is gone: the database says so by its claim."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger("standby")


class StandbyWorker:
    name = "standby"

    def __init__(self, claimed: asyncio.Event, take_over: Callable[[], Awaitable[object]]) -> None:
        self._leadership_acquired = claimed
        self._become_leader = take_over

    async def run(self) -> None:
        """What fails is tried again by the supervisor; until it succeeds the devices find nobody, and `/readyz` says why."""
        await self._leadership_acquired.wait()
        log.info("the devices are ours now")
        await self._become_leader()
        await asyncio.Event().wait()
