"""Asks the other instances of a cluster when this one does not reach the database, and says aloud when the database is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from domain.partitions.lease import InstanceLease

CHECK_INTERVAL_S = 0.1
RETRY_TIMEOUT_S = 0.5

log = structlog.get_logger("lease")


class InstanceLeaseWorker:
    name = "instance_lease"

    def __init__(self, lease: InstanceLease, retry_credentials: Callable[[], Awaitable[bool]]) -> None:
        """`retry_credentials` reads the credentials of devices that were refused meanwhile. It must not raise."""
        self._lease = lease
        self._retry_credentials = retry_credentials
        self._is_away = False
        self.outages = 0
        """How often the database was away for all instances."""

    async def run(self) -> None:
        while True:
            if self._lease.must_poll:
                await self._lease.poll()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_TIMEOUT_S):
                        await self._retry_credentials()
            self._note(self._lease.is_database_away)
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _note(self, is_away: bool) -> None:
        if is_away and not self._is_away:
            self.outages += 1
            log.error("no instance reaches the database; telemetry goes on into the log and is stored later")
        elif self._is_away and not is_away:
            log.info("the database is back, or other instances reach it")
        self._is_away = is_away
