"""The composed program: its parts by name, so that the lifecycle, the HTTP application and the metrics can reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quart import Quart

from adapters.http.feed.endpoint import FeedEndpoint
from adapters.http.server.limits import HttpConnectionLimiter
from app.config.settings import Settings
from app.runtime.metrics import MetricsRegistry, UnusableMessageCounter
from app.runtime.processes import WorkerProcessContext
from app.runtime.readiness import CachedReadinessProbe
from app.runtime.supervisor import BackgroundWorker, WorkerSupervisor
from app.wiring.adapters import ServiceAdapters
from app.wiring.services import DomainServices
from app.workers.checkpoint import EngineCheckpointWorker
from app.workers.cluster_feed import ClusterReadingFeedWorker
from app.workers.cluster_ingest import (
    ClusterDeviceEventWorker,
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
from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.feed_interest import DevicesWithSubscribersWorker
from app.workers.ingest import IngestWorker
from app.workers.instances import EventLogFollower, LeaseLossLinkSuspensionWorker, PostgresListenerWorker
from app.workers.periodic import ApprovalExpiryWorker, RollupWorker
from app.workers.retention import RetentionWorker
from app.workers.rule_timers import RuleTimerWorker
from app.workers.schedules import ScheduleWorker
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.ingest.partitions import PartitionOwnershipService
from domain.partitions.liveness import OwnLeaseValidityService

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.leadership import PostgresCoordinationConnection


@dataclass(slots=True)
class ClusterWorkers:
    """What an instance of a cluster runs beside the workers of a single one. `Workers.ingest` stores what its partitions get."""

    partitions: PartitionOwnershipService
    inbound: OwnedPartitionLogReader
    membership: ClusterHeartbeatWorker
    ownership: PartitionOwnershipWorker
    lease: OwnLeaseValidityService
    lease_worker: PeerLeasePollingWorker
    log_probe: InboundLogProbeWorker
    front: TelemetryToInboundLogWorker
    front_events: ClusterDeviceEventWorker
    front_queue: NonTelemetryEventQueue

    def stopped_partitions(self) -> Mapping[int, str]:
        """Those that stand still, because their log is damaged, with the reason."""
        return {**self.partitions.foreign_logs, **self.inbound.damaged}

    def readiness_errors(self) -> Mapping[str, str]:
        return {f"partition {partition}": reason for partition, reason in sorted(self.stopped_partitions().items())}


@dataclass(slots=True)
class Workers:
    """By name: the metrics read them, and other parts hand them work."""

    ingest: IngestWorker
    webhook_delivery: WebhookDeliveryWorker
    command_dispatch: CommandDispatchWorker
    schedules: ScheduleWorker
    checkpoint: EngineCheckpointWorker
    feed_interest: DevicesWithSubscribersWorker
    fault_log: UnusableMessageCounter
    leader_only: tuple[BackgroundWorker, ...]
    rollups: RollupWorker
    retention: RetentionWorker
    rule_timers: RuleTimerWorker
    every_instance: tuple[BackgroundWorker, ...]
    approval_expiry: ApprovalExpiryWorker
    log_follower: EventLogFollower | None = None
    postgres_listener: PostgresCoordinationConnection | None = None
    cluster: ClusterWorkers | None = None
    shared_feed: ClusterReadingFeedWorker | None = None
    """Set where other processes send readings to the feed clients of this one."""
    device_lease: LeaseLossLinkSuspensionWorker | None = None
    """Set when other instances may take the devices over."""

    def in_start_order(self, *, holds_devices: bool) -> list[BackgroundWorker]:
        """All workers of this instance. A sender starts before the workers that give it work, and the checkpoint stops after the
        ingest worker that feeds it (workers stop in the reverse order). An instance without devices neither sends to them nor
        sets them online or offline."""
        log_workers: list[BackgroundWorker] = (
            []
            if self.log_follower is None or self.postgres_listener is None
            else [PostgresListenerWorker(self.postgres_listener), self.log_follower]
        )
        shared: list[BackgroundWorker] = [] if self.shared_feed is None else [self.shared_feed]
        everywhere = (*self.every_instance, self.approval_expiry)
        if not holds_devices:
            return [*log_workers, *shared, self.feed_interest, self.webhook_delivery, *everywhere, self.schedules]
        senders: list[BackgroundWorker] = [self.checkpoint, self.feed_interest, self.webhook_delivery, self.command_dispatch]
        others: list[BackgroundWorker] = [*everywhere, *self.leader_only, self.rule_timers, self.schedules, self.ingest]
        if self.cluster is not None:
            cluster = self.cluster
            beats: list[BackgroundWorker] = [cluster.log_probe, cluster.membership, cluster.lease_worker, *self._lease()]
            members = [*beats, cluster.ownership, *shared]
            return [*log_workers, *members, *senders, *others, cluster.front_events, cluster.front]
        return [*log_workers, *shared, *self._lease(), *senders, *others]

    def start_on_leadership(self) -> list[BackgroundWorker]:
        """The workers to add when this instance becomes leader while it runs."""
        return [*self._lease(), self.checkpoint, self.command_dispatch, *self.leader_only, self.rule_timers, self.ingest]

    def _lease(self) -> list[BackgroundWorker]:
        return [] if self.device_lease is None else [self.device_lease]


@dataclass(slots=True)
class ComposedApplication:
    settings: Settings
    adapters: ServiceAdapters
    services: DomainServices
    workers: Workers
    supervisor: WorkerSupervisor
    metrics: MetricsRegistry
    http_connections: HttpConnectionLimiter
    worker: WorkerProcessContext | None = None
    """Set in a worker process."""
    http_app: Quart = field(init=False)
    feed_endpoint: FeedEndpoint = field(init=False)
    _database_probe: CachedReadinessProbe = field(init=False)

    def __post_init__(self) -> None:
        self._database_probe = CachedReadinessProbe(self.adapters.database.check)

    async def readiness_errors(self) -> Mapping[str, str]:
        """The current problem of each part; empty when the service is ready."""
        found = {f"worker {name}": error for name, error in self.supervisor.current_errors().items()}
        database_error = await self._database_probe.error()
        if database_error is not None:
            found["database"] = database_error
        found |= self.device_readiness_errors()
        if self.workers.postgres_listener is not None:
            found |= self.workers.postgres_listener.readiness_errors()
        if self.workers.cluster is not None:
            found |= self.workers.cluster.readiness_errors()
        return found

    def device_readiness_errors(self) -> Mapping[str, str]:
        """Why devices cannot connect here; empty when they can. In a cluster they can while the database is away."""
        errors = self.supervisor.current_errors()
        found = {f"worker {name}": errors[name] for name in ("front",) if name in errors}
        if (trouble := self.adapters.link.connection_problem()) is not None:
            found["broker"] = trouble
        if self.workers.device_lease is not None:
            found |= self.workers.device_lease.readiness_errors()
        return found

    def readiness_warnings(self) -> Mapping[str, str]:
        """What does not stop the service yet."""
        found = {"disk": self.adapters.disk.warning(), "broker": self.adapters.link.warning()}
        if (mover := self.services.stored_telemetry.mover) is not None:
            found["clickhouse"] = mover.warning()
        return {part: warning for part, warning in found.items() if warning is not None}
