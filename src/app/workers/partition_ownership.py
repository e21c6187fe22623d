"""Claims, restores and releases partitions of this instance, as the beats of the members show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

import structlog

from app.workers.base_worker import DueTaskWorker
from app.workers.cluster_membership import BEAT_INTERVAL_S
from app.workers.partition_log_reader import PartitionInboundLink
from app.workers.wake_event import WakeEvent
from domain.ingest.partition_ownership import PartitionOwnershipService

TRIM_INTERVAL_S = 600.0
"""Entries stay in the log for so long after they are stored: a database that fails over to an older state reads them again."""

log = structlog.get_logger("cluster")


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
