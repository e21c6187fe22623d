"""Asks the other instances of a cluster when this one does not reach the database, and says aloud when the database is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from domain.partitions.liveness import OwnLeaseValidityService

CHECK_INTERVAL_S = 0.1
RETRY_TIMEOUT_S = 0.5

log = structlog.get_logger("lease")


class PeerLeasePollingWorker:
    name = "instance_lease"

    def __init__(
        self,
        lease: OwnLeaseValidityService,
        retry_credentials: Callable[[], Awaitable[bool]],
        on_lost: Callable[[], Awaitable[None]],
    ) -> None:
        """`retry_credentials` reads the credentials of devices that were refused meanwhile. `on_lost` tells the other instances
        that this one has no lease any more: they need not wait until they judge that themselves. Both must not raise."""
        self._lease = lease
        self._on_lost = on_lost
        self._was_valid = False
        self._retry_credentials = retry_credentials
        self._is_away = False

    async def run(self) -> None:
        while True:
            if self._lease.must_poll:
                await self._lease.poll()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_TIMEOUT_S):
                        await self._retry_credentials()
            if self._was_valid and not self._lease.is_valid:
                await self._on_lost()
            self._was_valid = self._lease.is_valid
            self._note(self._lease.is_database_away)
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _note(self, is_away: bool) -> None:
        if is_away and not self._is_away:
            log.error("no instance reaches the database; telemetry goes on into the log and is stored later")
        elif self._is_away and not is_away:
            log.info("the database is back, or other instances reach it")
        self._is_away = is_away
