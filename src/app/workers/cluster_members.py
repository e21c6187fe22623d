"""Keeps this instance a member of the cluster: writes its beat, and reads those of the others.

The partitions are claimed by a worker of their own (`workers/partition_ownership.py`): restoring a large one takes longer than
the others wait for a beat.

Claims, restores and releases partitions of this instance, as the beats of the members show it.

Asks the other instances of a cluster when this one does not reach the database, and says aloud when the database is away.

Asks all the time whether this instance reaches the cluster's log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import field
from time import monotonic

import structlog

from app.workers.cluster_ingest import OwnedPartitionLogReader
from app.workers.due import DueTaskWorker
from domain.ingest.partitions import PartitionOwnershipService
from domain.kernel.backoff import Backoff
from domain.kernel.dataclasses import service
from domain.partitions.liveness import BEAT_MS, InboundLogReachabilityMonitor, OwnLeaseValidityService

BEAT_INTERVAL_S = BEAT_MS / 1000
BEAT_TIMEOUT_S = 2.0
"""A connection that swallows everything would hold up the next beats for as long as a statement may take."""


@service
class ClusterHeartbeatWorker(DueTaskWorker):
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


TRIM_INTERVAL_S = 600.0
"""Entries stay in the log for so long after they are stored: a database that fails over to an older state reads them again."""

log = structlog.get_logger("cluster")


@service
class PartitionOwnershipWorker(DueTaskWorker):
    name = "partition_ownership"

    partitions: PartitionOwnershipService
    inbound: OwnedPartitionLogReader
    announce: Callable[[], Awaitable[None]]
    """Tells the other instances that partitions were released."""

    adopt_devices: Callable[[frozenset[str]], Awaitable[object]]
    """Gets the live members when they have changed."""

    on_round: Callable[[], None]
    _adopted_for: frozenset[str] = field(default_factory=frozenset, init=False)
    _trimmed_at: float = field(default_factory=monotonic, init=False)

    async def run_once(self) -> float:
        released = self.partitions.released
        try:
            await self.partitions.run_round()
        finally:
            self.inbound.follow_ownership()
            self.on_round()
        if self.partitions.released != released:
            await self.announce()
        if self.partitions.live != self._adopted_for:
            live = self.partitions.live
            log.info("the members of the cluster are", instances=sorted(live))
            await self.adopt_devices(live)
            self._adopted_for = live
        if monotonic() - self._trimmed_at > TRIM_INTERVAL_S:
            self._trimmed_at = monotonic()
            await self.partitions.trim_logs()
        return 10 * BEAT_INTERVAL_S


CHECK_INTERVAL_S = 0.1
RETRY_TIMEOUT_S = 0.5

lease_log = structlog.get_logger("lease")


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
            lease_log.error("no instance reaches the database; telemetry goes on into the log and is stored later")
        elif self._is_away and not is_away:
            lease_log.info("the database is back, or other instances reach it")
        self._is_away = is_away


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
