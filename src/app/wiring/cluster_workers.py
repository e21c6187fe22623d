"""Constructs and joins the workers of an instance of a cluster, and opens and closes what they need.

Registers the metrics of an instance of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.runtime.metrics import MetricsRegistry
from app.runtime.supervisor import BackgroundWorker
from app.wiring.adapters import ServiceAdapters
from app.wiring.cluster import ClusterComponents, require_safe_log, require_same_clock
from app.wiring.program import ClusterWorkers, ComposedApplication
from app.wiring.services import DomainServices
from app.workers.cluster_feed import ClusterReadingFeedWorker
from app.workers.cluster_ingest import (
    ClusterDeviceEventWorker,
    FencedIngestWorker,
    InboundLogAppender,
    NonTelemetryEventQueue,
    OwnedPartitionLogReader,
    TelemetryToInboundLogWorker,
)
from app.workers.cluster_members import (
    ClusterHeartbeatWorker,
    InboundLogProbeWorker,
    PartitionOwnershipWorker,
    PeerLeasePollingWorker,
)
from app.workers.due import SingleInstanceWorker
from app.workers.feed_interest import DevicesWithSubscribersWorker
from app.workers.ingest import IngestWorker
from domain.ingest.partitions import PartitionOwnershipService
from domain.ingest.pipeline import IngestPipeline
from domain.kernel.ids import DeviceId
from domain.partitions.liveness import InboundLogReachabilityMonitor, OwnLeaseValidityService
from domain.partitions.ports import ConnectedDevices

ON_ONE_INSTANCE = frozenset({"rollups", "device_cleanup", "webhook_cleanup", "homeassistant", "reading_mover"})
"""Workers that serve the whole fleet."""


def create_cluster_workers(
    adapters: ServiceAdapters,
    services: DomainServices,
    cluster: ClusterComponents,
    feed_interest: DevicesWithSubscribersWorker,
    front_pipeline: IngestPipeline,
    partition_pipeline: IngestPipeline,
    ingest_parts: Mapping[str, Any],
    feed: ClusterReadingFeedWorker,
) -> tuple[IngestWorker, ClusterWorkers]:
    """The worker that stores what this instance's partitions get, and the others."""
    log_reach = InboundLogReachabilityMonitor(adapters.clock)
    partitions = _create_partition_service(adapters, services, cluster, log_reach, feed_interest, feed)
    inbound = OwnedPartitionLogReader(
        log=cluster.inbound_log, ownership=cluster.ownership, read_blocks=adapters.engine.read_blocks, drop=partitions.drop
    )
    lease = _create_lease(adapters, services, cluster, partitions)
    queue, appender = (
        NonTelemetryEventQueue(),
        InboundLogAppender(cluster.inbound_log, cluster.ownership.count, cluster.instance),
    )
    front = TelemetryToInboundLogWorker(
        link=adapters.link,
        outbound=adapters.link,
        appender=appender,
        events=queue,
        lease=lease,
        on_connected=cluster.bus.announce_connected,
    )
    front_events = ClusterDeviceEventWorker(
        link=queue,
        appender=appender,
        make_batch=adapters.engine.make_batch,
        require_lease=lease.require,
        pipeline=front_pipeline,
        **ingest_parts,
    )
    membership, ownership = _create_membership(adapters, services, cluster, partitions, inbound)
    lease_worker = PeerLeasePollingWorker(lease, services.credential_sync.retry_pending, on_lost=cluster.bus.announce_move)
    ingest = FencedIngestWorker(link=inbound, pipeline=partition_pipeline, **ingest_parts)
    probe = InboundLogProbeWorker(cluster.bus.reaches_itself, log_reach)
    return ingest, ClusterWorkers(
        partitions, inbound, membership, ownership, lease, lease_worker, probe, front, front_events, queue
    )


def _create_partition_service(
    adapters: ServiceAdapters,
    services: DomainServices,
    cluster: ClusterComponents,
    log_reach: InboundLogReachabilityMonitor,
    feed_interest: DevicesWithSubscribersWorker,
    feed: ClusterReadingFeedWorker,
) -> PartitionOwnershipService:
    partitions = PartitionOwnershipService(
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
    cluster.owns_device = partitions.owns_device
    return partitions


def _create_lease(
    adapters: ServiceAdapters, services: DomainServices, cluster: ClusterComponents, partitions: PartitionOwnershipService
) -> OwnLeaseValidityService:
    sync = services.credential_sync
    return OwnLeaseValidityService(
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


def _create_membership(
    adapters: ServiceAdapters,
    services: DomainServices,
    cluster: ClusterComponents,
    partitions: PartitionOwnershipService,
    inbound: OwnedPartitionLogReader,
) -> tuple[ClusterHeartbeatWorker, PartitionOwnershipWorker]:
    membership = ClusterHeartbeatWorker(partitions=partitions, wake_event=cluster.beat_wake, on_beat=cluster.ownership_wake.set)

    async def adopt(live: frozenset[str]) -> None:
        """One instance does it; the others would find nothing left."""
        if cluster.instance == min(live, default=""):
            await services.presence.start_grace_of_lost_instances(live)

    ownership = PartitionOwnershipWorker(
        partitions=partitions,
        inbound=inbound,
        wake_event=cluster.ownership_wake,
        announce=cluster.bus.announce_move,
        adopt_devices=adopt,
        on_round=lambda: adapters.link.hold_partitions(cluster.ownership.partitions),
    )
    return membership, ownership


def on_one_instance(cluster: ClusterComponents, workers: Sequence[BackgroundWorker]) -> tuple[BackgroundWorker, ...]:
    """`workers`, with those of ON_ONE_INSTANCE on the owner of partition 0 only."""
    return tuple(
        SingleInstanceWorker(each, lambda: 0 in cluster.ownership) if each.name in ON_ONE_INSTANCE else each for each in workers
    )


async def open_cluster(program: ComposedApplication) -> None:
    """Raises StartupError, ValidationFailed, Unavailable."""
    cluster, workers, feed = program.adapters.cluster, program.workers.cluster, program.workers.shared_feed
    if cluster is None or workers is None or feed is None:
        return
    await require_same_clock(program.settings, program.adapters.database, program.adapters.clock)
    await require_safe_log(program.settings)
    await cluster.inbound_log.open()
    await workers.partitions.prepare()
    front = workers.front

    def on_move(sender: str) -> None:
        workers.lease.on_joined(sender)
        cluster.beat_wake.set()

    async def close_older(devices: ConnectedDevices) -> None:
        front.close_older(devices)

    await cluster.bus.answer_calls(lambda: workers.lease.is_valid)
    await cluster.bus.answer_leases(workers.lease.answer)
    await cluster.bus.on_moves(on_move)
    await cluster.bus.on_connected(close_older)
    await feed.start()
    await cluster.bus.announce_move()  # before the first beat: from then on people can change credentials here
    await cluster.bus.flush()
    await workers.partitions.beat()
    await cluster.bus.announce_move()


async def leave_cluster(program: ComposedApplication) -> None:
    """Give the partitions up, and what belongs to them at an external broker, and tell the others. Raises Unavailable."""
    cluster, workers = program.adapters.cluster, program.workers.cluster
    if cluster is None or workers is None:
        return
    program.adapters.link.hold_partitions(())
    await workers.inbound.stop()
    await workers.partitions.leave()
    await cluster.bus.announce_move()


def register_cluster_metrics(metrics: MetricsRegistry, cluster: ClusterComponents, workers: ClusterWorkers) -> None:
    ownership, inbound_log, partitions = cluster.ownership, cluster.inbound_log, workers.partitions

    def lag() -> int:
        owned = ownership.partitions
        return sum(max(0, inbound_log.last_known_position(each) - ownership.position(each)) for each in owned)

    metrics.register_gauge("partitions_owned", "Partitions that this instance owns.", lambda: len(ownership))
    metrics.register_gauge(
        "partitions_stopped",
        "Partitions of this instance that stand still, because their log is damaged.",
        lambda: len(workers.inbound.damaged) + len(partitions.foreign_logs),
    )
    metrics.register_gauge("partition_lag_entries", "Entries in the logs of owned partitions that are not stored yet.", lag)
    metrics.register_gauge("cluster_members", "Instances that are alive, as this one sees it.", lambda: len(partitions.live))
    metrics.register_gauge(
        "database_away",
        "1 while no instance reaches the database and telemetry goes into the log only.",
        lambda: int(workers.lease.is_database_away),
    )
    metrics.register_gauge(
        "front_events_pending", "Messages other than telemetry that wait for the database.", lambda: workers.front_queue.pending
    )
    metrics.register_counter(
        "partition_moves",
        "Partitions that this instance claimed, released, and lost to another one.",
        lambda: {"claimed": partitions.claimed, "released": partitions.released, "lost": partitions.lost},
        label="kind",
    )
    metrics.register_counter(
        "database_sessions_ended",
        "Database sessions of dead instances that this instance has ended, with their locks.",
        lambda: partitions.ended_sessions,
    )
    metrics.register_counter("log_appends", "Entries that this instance appended to the log.", lambda: inbound_log.appends)
    metrics.register_counter("log_append_retries", "Attempts to append that were repeated.", lambda: inbound_log.append_retries)
