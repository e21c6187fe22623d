"""Keeps this instance a member of its cluster: its beats, its lease, and whether it reaches the cluster's log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import field

import structlog

from app.workers.due import DueLoop
from domain.ingest.partitions import PartitionOwnershipService
from domain.kernel.backoff import Backoff
from domain.kernel.dataclasses import service
from domain.partitions.liveness import BEAT_MS, InboundLogReachabilityMonitor, OwnLeaseValidityService

BEAT_INTERVAL_S = BEAT_MS / 1000
BEAT_TIMEOUT_S = 2.0
"""A connection that swallows everything would hold up the next beats for as long as a statement may take."""
LEASE_CHECK_INTERVAL_S = 0.1
CREDENTIAL_RETRY_TIMEOUT_S = 0.5
LOG_PROBE_INTERVAL_S = 0.5
LOG_PROBE_TIMEOUT_S = 1.0

log = structlog.get_logger("lease")


@service
class ClusterHeartbeatWorker(DueLoop):
    """Writes this instance's beat, and reads those of the others. The partitions are claimed by a worker of their own, because
    restoring a large one takes longer than the others wait for a beat."""

    name = "cluster_membership"
    backoff = Backoff((0.05, 0.2, BEAT_INTERVAL_S))
    """The first instance that reaches the database again waits for the others only as long as a lease."""

    partitions: PartitionOwnershipService
    on_beat: Callable[[], None]

    async def run_once(self) -> float:
        async with asyncio.timeout(BEAT_TIMEOUT_S):
            await self.partitions.beat()
        self.on_beat()
        return min(BEAT_INTERVAL_S, self.partitions.next_judgement_s())


@service
class PeerLeasePollingWorker:
    """Asks the other instances when this one does not reach the database, and says aloud when the database is away."""

    name = "instance_lease"

    lease: OwnLeaseValidityService
    retry_credentials: Callable[[], Awaitable[bool]]
    """Reads the credentials of devices that were refused meanwhile. It must not raise."""
    on_lost: Callable[[], Awaitable[None]]
    """Tells the other instances that this one has no lease any more: they need not wait until they judge that themselves. It must
    not raise."""
    _was_valid: bool = field(default=False, init=False)
    _is_away: bool = field(default=False, init=False)

    async def run(self) -> None:
        while True:
            if self.lease.must_poll:
                await self.lease.poll()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CREDENTIAL_RETRY_TIMEOUT_S):
                        await self.retry_credentials()
            if self._was_valid and not self.lease.is_valid:
                await self.on_lost()
            self._was_valid = self.lease.is_valid
            self._note(self.lease.is_database_away)
            await asyncio.sleep(LEASE_CHECK_INTERVAL_S)

    def _note(self, is_away: bool) -> None:
        if is_away and not self._is_away:
            log.error("no instance reaches the database; telemetry goes on into the log and is stored later")
        elif self._is_away and not is_away:
            log.info("the database is back, or other instances reach it")
        self._is_away = is_away


@service
class InboundLogProbeWorker:
    """Asks all the time whether this instance reaches the cluster's log."""

    name = "log_probe"

    reaches_log: Callable[[float], Awaitable[bool]]
    """Gets the seconds to wait for an answer. It must not raise."""
    meter: InboundLogReachabilityMonitor

    async def run(self) -> None:
        self.meter.on_answer()  # the log was opened; what came after that does not count as its silence
        while True:
            if await self.reaches_log(LOG_PROBE_TIMEOUT_S):
                self.meter.on_answer()
            await asyncio.sleep(LOG_PROBE_INTERVAL_S)
