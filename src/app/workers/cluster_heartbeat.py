"""Keeps this instance a member of the cluster: writes its beat, and reads those of the others.

The partitions are claimed by a worker of their own (`workers/partition_ownership.py`): restoring a large one takes longer than
the others wait for a beat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.workers.due_task_worker import DueTaskWorker
from domain.ingest.partitions import PartitionOwnershipService
from domain.kernel.backoff import Backoff
from domain.kernel.dataclasses import service
from domain.partitions.liveness import BEAT_MS

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
