"""Claims, restores and releases partitions of this instance, as the beats of the members show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from time import monotonic

import structlog

from app.workers.cluster_heartbeat import BEAT_INTERVAL_S
from app.workers.due_task_worker import DueTaskWorker
from app.workers.owned_partition_log_reader import OwnedPartitionLogReader
from domain.ingest.partitions import PartitionOwnershipService
from domain.kernel.dataclasses import service

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
