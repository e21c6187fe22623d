"""Keeps this instance a member of the cluster: one worker beats, the other claims and releases partitions by what the beats show.

They are two, because restoring a large partition takes longer than the others wait for a beat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

import structlog

from app.workers.base_worker import DueTaskWorker
from app.workers.partition_log_reader import PartitionInboundLink
from app.workers.wake_event import WakeEvent
from domain.ingest.partition_ownership import PartitionOwnershipService
from domain.kernel.backoff import Backoff
from domain.partitions.liveness import BEAT_MS

BEAT_INTERVAL_S = BEAT_MS / 1000
BEAT_TIMEOUT_S = 2.0
"""A connection that swallows everything would hold up the next beats for as long as a statement may take."""
TRIM_INTERVAL_S = 600.0
"""Entries stay in the log for so long after they are stored: a database that fails over to an older state reads them again."""

log = structlog.get_logger("cluster")


class ClusterMembershipWorker(DueTaskWorker):
    name = "cluster_membership"
    backoff = Backoff((0.05, 0.2, BEAT_INTERVAL_S))
    """The first instance that reaches the database again waits for the others only as long as a lease."""

    def __init__(
        self,
        *,
        partitions: PartitionOwnershipService,
        wake_event: WakeEvent,
        on_beat: Callable[[], None],
    ) -> None:
        """`wake_event` is set when another instance joins, leaves or releases."""
        super().__init__(wake_event)
        self._partitions = partitions
        self._on_beat = on_beat

    async def run_once(self) -> float:
        async with asyncio.timeout(BEAT_TIMEOUT_S):
            await self._partitions.beat()
        self._on_beat()
        return min(BEAT_INTERVAL_S, self._partitions.next_judgement_s())


class PartitionOwnershipWorker(DueTaskWorker):
    name = "partition_ownership"

    def __init__(
        self,
        *,
        partitions: PartitionOwnershipService,
        inbound: PartitionInboundLink,
        wake_event: WakeEvent,
        announce: Callable[[], Awaitable[None]],
        adopt_devices: Callable[[frozenset[str]], Awaitable[object]],
        on_round: Callable[[], None],
    ) -> None:
        """`wake_event` is set after each beat. `announce` tells the other instances that partitions were released.
        `adopt_devices` gets the live members when they have changed. `on_round` is called after each round."""
        super().__init__(wake_event)
        self._partitions = partitions
        self._inbound = inbound
        self._announce = announce
        self._adopt_devices = adopt_devices
        self._on_round = on_round
        self._adopted_for: frozenset[str] = frozenset()
        self._trimmed_at = monotonic()

    async def run_once(self) -> float:
        released = self._partitions.released
        try:
            await self._partitions.run_round()
        finally:
            self._inbound.follow_ownership()
            self._on_round()
        if self._partitions.released != released:
            await self._announce()
        if self._partitions.live != self._adopted_for:
            live = self._partitions.live
            log.info("the members of the cluster are", instances=sorted(live))
            await self._adopt_devices(live)
            self._adopted_for = live
        if monotonic() - self._trimmed_at > TRIM_INTERVAL_S:
            self._trimmed_at = monotonic()
            await self._partitions.trim_logs()
        return 10 * BEAT_INTERVAL_S
