"""Constructs the background loops that an instance of a cluster has beside, or in place of, those of a single one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.wiring.adapters import ServiceAdapters
from app.wiring.services import DomainServices
from app.workers.cluster_feed import ClusterReadingFeedWorker
from app.workers.cluster_front import ClusterDeviceEventWorker, InboundLogAppender, NonTelemetryEventQueue, TelemetryAppendWorker
from app.workers.cluster_members import ClusterHeartbeatWorker, InboundLogProbeWorker, PeerLeasePollingWorker
from app.workers.cluster_partitions import (
    FencedIngestPipeline,
    FencedIngestWorker,
    OwnedPartitionLogReader,
    PartitionOwnershipWorker,
)
from app.workers.feed_interest import DevicesWithSubscribersWorker
from domain.ingest.partitions import PartitionOwnershipService
from domain.ingest.pipeline import IngestPipeline
from domain.kernel.ids import DeviceId
from domain.partitions.liveness import InboundLogReachabilityMonitor, OwnLeaseValidityService

if TYPE_CHECKING:
    from app.wiring.cluster import ClusterComponents


class ClusterWorkers:
    """With the services that they share."""

    def __init__(
        self,
        adapters: ServiceAdapters,
        services: DomainServices,
        cluster: ClusterComponents,
        feed_interest: DevicesWithSubscribersWorker,
        feed: ClusterReadingFeedWorker,
        pipeline_parts: Mapping[str, Any],
        ingest_parts: Mapping[str, Any],
    ) -> None:
        """`pipeline_parts` and `ingest_parts`: what each ingest pipeline and each ingest worker is given."""
        self.log_reach = log_reach = InboundLogReachabilityMonitor(adapters.clock)
        self.log_probe = InboundLogProbeWorker(reaches_log=cluster.bus.reaches_itself, meter=log_reach)
        self.partitions = PartitionOwnershipService(
            uow=services.uow,
            membership_uow=cluster.membership_database.uow,
            clock=adapters.clock,
            engine=adapters.engine.engine,
            engine_commit_lock=services.engine_commit_lock,
            absence=services.absence,
            log=cluster.inbound_log,
            ownership=cluster.ownership,
            calls=cluster.bus,
            log_reach=log_reach,
            on_restored=feed_interest.repeat,
            on_takeover=feed.on_takeover,
            before_release=feed.flush,
        )
        cluster.owns_device = self.partitions.owns_device
        self.inbound = OwnedPartitionLogReader(
            log=cluster.inbound_log,
            ownership=cluster.ownership,
            read_blocks=adapters.engine.read_blocks,
            drop=self.partitions.drop,
        )
        self.ingest = FencedIngestWorker(link=self.inbound, pipeline=FencedIngestPipeline(**pipeline_parts), **ingest_parts)
        """Stores what the partitions of this instance get."""
        self._wire_membership(adapters, services, cluster)
        self._wire_front(adapters, cluster, IngestPipeline(**pipeline_parts), ingest_parts)

    def _wire_membership(self, adapters: ServiceAdapters, services: DomainServices, cluster: ClusterComponents) -> None:
        partitions, sync = self.partitions, services.credential_sync
        self.lease = OwnLeaseValidityService(
            instance=cluster.instance,
            clock=adapters.clock,
            calls=cluster.bus,
            renewed_ms=lambda: partitions.last_beat_ms,
            members=lambda: partitions.members,
            changes=cluster.credential_changes.of_last,
            unknown=lambda: sync.pending,
            refuse=lambda device_id: sync.refuse(DeviceId(device_id)),
            is_replaced=lambda: partitions.is_replaced,
        )
        self.lease_worker = PeerLeasePollingWorker(
            lease=self.lease, retry_credentials=sync.retry_pending, on_lost=cluster.bus.announce_move
        )
        self.membership = ClusterHeartbeatWorker(
            partitions=partitions, wake_event=cluster.beat_wake, on_beat=cluster.ownership_wake.set
        )

        async def adopt(live: frozenset[str]) -> None:
            """One instance does it; the others would find nothing left."""
            if cluster.instance == min(live, default=""):
                await services.presence.start_grace_of_lost_instances(live)

        self.ownership = PartitionOwnershipWorker(
            partitions=partitions,
            inbound=self.inbound,
            wake_event=cluster.ownership_wake,
            announce=cluster.bus.announce_move,
            adopt_devices=adopt,
            on_round=lambda: adapters.link.hold_partitions(cluster.ownership.partitions),
        )

    def _wire_front(
        self, adapters: ServiceAdapters, cluster: ClusterComponents, pipeline: IngestPipeline, ingest_parts: Mapping[str, Any]
    ) -> None:
        self.front_queue = NonTelemetryEventQueue()
        appender = InboundLogAppender(
            inbound_log=cluster.inbound_log, partition_count=cluster.ownership.count, instance=cluster.instance
        )
        self.front = TelemetryAppendWorker(
            link=adapters.link,
            outbound=adapters.link,
            appender=appender,
            events=self.front_queue,
            lease=self.lease,
            on_connected=cluster.bus.announce_connected,
        )
        self.front_events = ClusterDeviceEventWorker(
            link=self.front_queue,
            appender=appender,
            make_batch=adapters.engine.make_batch,
            require_lease=self.lease.require,
            pipeline=pipeline,
            **ingest_parts,
        )

    def stopped_partitions(self) -> Mapping[int, str]:
        """Those that stand still, because their log is damaged, with the reason."""
        return {**self.partitions.foreign_logs, **self.inbound.damaged}

    def readiness_errors(self) -> Mapping[str, str]:
        return {f"partition {partition}": reason for partition, reason in sorted(self.stopped_partitions().items())}
