"""Constructs and joins every part of the program. Nothing is opened here: `wiring/lifecycle.py` starts and stops the parts.

Creates the Home Assistant worker, if it is configured.

The feed of readings across processes: those of a cluster, or the worker processes of one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from adapters.storage.sql.probes import session_name
from app.config.settings import Settings
from app.runtime.metrics import MetricsRegistry, UnusableMessageCounter
from app.runtime.processes import WorkerProcessContext
from app.runtime.supervisor import BackgroundWorker, LockWithTimeout, WorkerSupervisor
from app.wiring.adapters import ServiceAdapters
from app.wiring.http import create_connection_limiter, create_http_app
from app.wiring.metrics import register_metrics
from app.wiring.program import ClusterWorkers, ComposedApplication, Workers
from app.wiring.services import DomainServices
from app.workers.checkpoint import EngineCheckpointWorker
from app.workers.cluster_feed import ClusterReadingFeedWorker
from app.workers.cluster_ingest import FencedIngestPipeline
from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.dead_letter_replay import IngestDeadLetterReplayWorker
from app.workers.due import WakeEvent, WakeEvents
from app.workers.feed_interest import DevicesWithSubscribersWorker, EventLogAccessChangeDetector
from app.workers.ingest import IngestWorker
from app.workers.instances import EventLogFollower, LeaseLossLinkSuspensionWorker, OtherInstanceEventHandler
from app.workers.periodic import (
    ApprovalExpiryWorker,
    DeletedWebhookCleanupWorker,
    DeviceErasureAndCredentialSyncWorker,
    DroppedMessageWorker,
    NotificationDeliveryWorker,
    PeriodicFlushWorker,
    PresenceExpiryWorker,
    RollupWorker,
    SteadyTimeSavingWorker,
)
from app.workers.retention import LowDiskRetentionTriggerWorker, RetentionWorker
from app.workers.rule_timers import RuleTimerWorker
from app.workers.schedules import DevicePlanWorker, ScheduleWorker
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.commands.dispatch import CommandCrashRecovery
from domain.devices.health import LastSeenBuffer
from domain.feed.interest import DevicesWithSubscribersService
from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.ingest.pipeline import IngestPipeline
from domain.ingest.results import FencedTimerResultWriter
from domain.webhooks.delivery import DeletedWebhookCleanup

if TYPE_CHECKING:
    from app.workers.homeassistant import HomeAssistantWorker


def create_homeassistant_workers(
    settings: Settings, outside: ServiceAdapters, services: DomainServices, metrics: MetricsRegistry
) -> tuple[HomeAssistantWorker, ...]:
    """Empty if Home Assistant is not configured, or if this instance has no broker."""
    url, key = settings.homeassistant, settings.homeassistant_key
    if url is None or key is None or not settings.has_broker:
        return ()
    from adapters.mqtt.homeassistant import HomeAssistantBrokerSettings, HomeAssistantMqttClient
    from app.workers.homeassistant import HomeAssistantWorker
    from domain.homeassistant.bridge import HomeAssistantBridge

    bridge = HomeAssistantBridge(
        uow=services.uow,
        clock=outside.clock,
        audience=FeedSnapshotAndReplayService(uow=services.uow, clock=outside.clock),
        authenticator=services.callers,
        commands=services.commands,
        latest_values=outside.engine.engine,
        secret=key.get_secret_value(),
        discovery_prefix=settings.homeassistant_prefix,
    )
    address = urlsplit(url.get_secret_value())
    tls = address.scheme == "mqtts"
    user, password = (None if part is None else unquote(part) for part in (address.username, address.password))
    port = address.port or (8883 if tls else 1883)
    broker = HomeAssistantBrokerSettings(address.hostname or "127.0.0.1", port, user, password, tls)
    worker = HomeAssistantWorker(bridge=bridge, broker=HomeAssistantMqttClient(broker), hub=outside.feed)
    register_homeassistant_metrics(metrics, worker.metrics)
    return (worker,)


def register_homeassistant_metrics(metrics: MetricsRegistry, read: Callable[[], Mapping[str, float]]) -> None:
    gauges = {"connected": "1 while the bridge is connected to the broker.", "devices": "Devices that Home Assistant shows."}
    counters = {
        "connections": "Connections to the broker of Home Assistant.",
        "published": "Messages published to Home Assistant.",
        "commands": "Commands from Home Assistant.",
        "refused": "Commands from Home Assistant that were refused.",
        "ignored": "Messages from Home Assistant that are not commands.",
    }
    for name, text in gauges.items():
        metrics.register_gauge(f"homeassistant_{name}", text, partial(_read_one, read, name))
    for name, text in counters.items():
        metrics.register_counter(f"homeassistant_{name}", text, partial(_read_one, read, name))


def _read_one(read: Callable[[], Mapping[str, float]], name: str) -> float:
    return read()[name]


def create_shared_feed(
    adapters: ServiceAdapters, services: DomainServices, interest_wake: WakeEvent
) -> ClusterReadingFeedWorker | None:
    """None for an instance that shares no readings."""
    bus = adapters.feed_bus
    if bus is None:
        return None
    feed = ClusterReadingFeedWorker(
        instance=adapters.feed_name,
        bus=bus,
        hub=adapters.feed,
        clock=adapters.clock,
        interest_wake=interest_wake,
        commit_lock=LockWithTimeout(services.engine_commit_lock),
    )
    if services.followed_feed is not None:
        services.followed_feed.on_reading = feed.publish
        services.followed_feed.on_store_time = feed.set_store_time
    return feed


def compose(settings: Settings, worker: WorkerProcessContext | None = None) -> ComposedApplication:
    """Raises SettingsError, StartupError, EngineMissingError, ExtensionOutdatedError, DatabaseUnusableError."""
    wake_events = WakeEvents()
    adapters = ServiceAdapters(settings, on_interest=wake_events.feed_interest.set, worker=worker)
    services = DomainServices(settings, adapters, wake_events)
    workers = _create_workers(adapters, services, wake_events)
    _add_cluster_workers(settings, adapters, services, wake_events, workers)
    metrics = MetricsRegistry()
    workers.leader_only += create_homeassistant_workers(settings, adapters, services, metrics)
    if adapters.cluster is not None:
        from app.wiring.cluster_workers import on_one_instance

        workers.leader_only = on_one_instance(adapters.cluster, workers.leader_only)
    supervisor = WorkerSupervisor(workers.in_start_order(holds_devices=adapters.is_leader))
    connections = create_connection_limiter(settings)
    program = ComposedApplication(settings, adapters, services, workers, supervisor, metrics, connections, worker)
    program.http_app = create_http_app(program)
    register_metrics(program)
    return program


def _create_workers(adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents) -> Workers:
    clock = adapters.clock
    last_seen, faults = LastSeenBuffer(), UnusableMessageCounter(clock, services.dropped_messages)
    recovery = None if adapters.cluster else CommandCrashRecovery(uow=services.leader_uow, clock=clock)
    dispatch = CommandDispatchWorker(dispatch=services.dispatch, recovery=recovery, wake_event=wake_events.dispatch)
    pipeline = _create_ingest_pipeline(adapters, services, dispatch)
    shared_feed = create_shared_feed(adapters, services, wake_events.feed_interest)
    feed_interest = _create_feed_interest_worker(adapters, services, wake_events, shared_feed)
    ingest_parts: dict[str, Any] = {
        "engine_commit_lock": services.engine_commit_lock,
        "last_seen": last_seen,
        "fault_log": faults,
        "clock_offsets": services.clock_offsets,
        "dead_letters": services.dead_letters,
        "ensure_interest_current": feed_interest.ensure_current,
        "rule_timer_wake": wake_events.rule_timers,
    }
    ingest, cluster = _create_ingest_workers(adapters, services, dispatch, pipeline, feed_interest, ingest_parts, shared_feed)
    rollups, retention = RollupWorker(rollups=services.stored_telemetry.rollups), _create_retention_worker(adapters, services)
    return Workers(
        ingest=ingest,
        webhook_delivery=WebhookDeliveryWorker(
            deliveries=services.deliveries, courier=adapters.courier, clock=clock, wake_event=wake_events.deliveries
        ),
        command_dispatch=dispatch,
        schedules=_create_schedule_worker(adapters, services, wake_events),
        checkpoint=_create_checkpoint_worker(adapters, services, last_seen),
        feed_interest=feed_interest,
        fault_log=faults,
        rollups=rollups,
        retention=retention,
        rule_timers=_create_rule_timer_worker(adapters, services, wake_events),
        approval_expiry=ApprovalExpiryWorker(approvals=services.approvals, clock=clock, wake_event=wake_events.approvals),
        every_instance=_create_small_workers(adapters, services, wake_events, retention),
        leader_only=(rollups, *_create_leader_workers(adapters, services, wake_events, pipeline)),
        cluster=cluster,
        shared_feed=shared_feed,
    )


def _create_ingest_workers(
    adapters: ServiceAdapters,
    services: DomainServices,
    dispatch: CommandDispatchWorker,
    pipeline: IngestPipeline,
    feed_interest: DevicesWithSubscribersWorker,
    parts: Mapping[str, Any],
    shared_feed: ClusterReadingFeedWorker | None,
) -> tuple[IngestWorker, ClusterWorkers | None]:
    """The worker that stores telemetry, and what a cluster adds. `parts`: the arguments of `IngestWorker` that all have."""
    if adapters.cluster is None or shared_feed is None:
        return IngestWorker(link=adapters.link, pipeline=pipeline, **parts), None
    from app.wiring.cluster_workers import create_cluster_workers  # needs NATS' client; a single instance does not

    by_partition = _create_ingest_pipeline(adapters, services, dispatch, FencedIngestPipeline)
    return create_cluster_workers(adapters, services, adapters.cluster, feed_interest, pipeline, by_partition, parts, shared_feed)


def _create_small_workers(
    adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents, retention: RetentionWorker
) -> tuple[BackgroundWorker, ...]:
    flushes = (services.callers.flush_last_used, services.logins.flush_throttled_logins, services.denial_log.flush)
    return (
        SteadyTimeSavingWorker(steady_time=services.steady_time),
        NotificationDeliveryWorker(
            notifications=services.notifications.delivery, clock=adapters.clock, wake_event=wake_events.notifications
        ),
        PeriodicFlushWorker(flushes=flushes),
        retention,
        LowDiskRetentionTriggerWorker(disk=adapters.disk, retention_wake=retention.wake_event),
    )


def _create_schedule_worker(adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents) -> ScheduleWorker:
    return ScheduleWorker(
        firing=services.firing, left_edges=services.left_edges, clock=adapters.clock, wake_event=wake_events.schedules
    )


def _create_checkpoint_worker(
    adapters: ServiceAdapters, services: DomainServices, last_seen: LastSeenBuffer
) -> EngineCheckpointWorker:
    return EngineCheckpointWorker(
        engine=adapters.engine.engine,
        uow=services.leader_uow,
        last_seen=last_seen,
        clock_offsets=services.clock_offsets,
        engine_commit_lock=services.engine_commit_lock,
        owned=None if adapters.cluster is None else adapters.cluster.ownership,
    )


def _create_leader_workers(
    adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents, pipeline: IngestPipeline
) -> Sequence[BackgroundWorker]:
    """Workers that run only on the leader, the instance that holds the devices."""
    clock, mover = adapters.clock, services.stored_telemetry.mover
    return (
        *(() if mover is None else (mover,)),
        _create_replay_worker(adapters, services, wake_events, pipeline),
        DevicePlanWorker(plans=services.device_plans, queue=services.device_plan_queue),
        PresenceExpiryWorker(presence=services.presence, clock=clock, wake_event=wake_events.presence),
        DeviceErasureAndCredentialSyncWorker(
            erasure=services.device_erasure,
            credential_sync=services.credential_sync,
            clock=clock,
            wake_event=wake_events.device_cleanup,
        ),
        services.audit.create_worker(),
        DroppedMessageWorker(dropped_messages=services.dropped_messages, wake_event=wake_events.dropped_messages),
        DeletedWebhookCleanupWorker(cleanup=DeletedWebhookCleanup(uow=services.uow), wake_event=WakeEvent()),
    )


def _add_cluster_workers(
    settings: Settings, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents, workers: Workers
) -> None:
    """Follow the event log when other instances may write to the same database."""
    if services.followed_feed is not None:
        from adapters.storage.sql.postgres.leadership import DeviceLeaderLock, PostgresCoordinationConnection

        peer_changes = OtherInstanceEventHandler(
            uow=services.uow,
            rules=services.rules,
            credential_sync=services.credential_sync,
            dispatch=services.dispatch,
            device_plans=services.device_plan_queue,
            execution_waiter=adapters.execution_waiter,
            approval_waiter=adapters.approval_waiter,
            deliveries=workers.webhook_delivery,
            wake_events=wake_events,
        )
        workers.log_follower = EventLogFollower(
            uow=services.uow, feed=services.followed_feed, peer_changes=peer_changes, wake_event=wake_events.event_log
        )
        workers.postgres_listener = PostgresCoordinationConnection(
            settings.effective_database_url,
            on_notify=wake_events.event_log.set,
            process_id=adapters.process_id,
            session_name=session_name(adapters.front),
            leader_lock=None if adapters.fence is None else DeviceLeaderLock(adapters.fence),
            on_silence=adapters.database.abort_connections,
        )
        services.followed_feed.notify_instances = workers.postgres_listener.request_notify
        workers.device_lease = _create_device_lease_worker(adapters, services, workers)


def _create_device_lease_worker(
    adapters: ServiceAdapters, services: DomainServices, workers: Workers
) -> LeaseLossLinkSuspensionWorker | None:
    if workers.cluster is not None:
        return LeaseLossLinkSuspensionWorker(
            adapters.link, workers.cluster.lease.remaining_s, services.presence.on_suspension_ended
        )
    lock = None if workers.postgres_listener is None else workers.postgres_listener.leader_lock
    return None if lock is None else LeaseLossLinkSuspensionWorker(adapters.link, lock.remaining_s)


def _create_ingest_pipeline(
    adapters: ServiceAdapters,
    services: DomainServices,
    dispatch: CommandDispatchWorker,
    kind: type[IngestPipeline] = IngestPipeline,
) -> IngestPipeline:
    return kind(
        uow=services.leader_uow,
        link=adapters.link,
        engine=adapters.engine.engine,
        engine_clock=services.engine_clock,
        make_batch=adapters.engine.make_batch,
        device_messages=services.device_messages,
        ingest=services.ingest,
        on_devices_ready=dispatch.on_devices_ready,
        on_devices_subscribed=dispatch.on_devices_subscribed,
    )


def _create_rule_timer_worker(adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents) -> RuleTimerWorker:
    return RuleTimerWorker(
        engine=adapters.engine.engine,
        ingest=services.ingest
        if adapters.cluster is None
        else FencedTimerResultWriter(services.ingest, adapters.cluster.ownership),
        uow=services.leader_uow,
        engine_clock=services.engine_clock,
        engine_commit_lock=services.engine_commit_lock,
        absence=services.absence,
        wake_event=wake_events.rule_timers,
    )


def _create_replay_worker(
    adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents, pipeline: IngestPipeline
) -> IngestDeadLetterReplayWorker:
    return IngestDeadLetterReplayWorker(
        dead_letters=services.dead_letters,
        pipeline=pipeline,
        engine=adapters.engine.engine,
        make_batch=adapters.engine.make_batch,
        engine_commit_lock=services.engine_commit_lock,
        rule_timer_wake=wake_events.rule_timers,
        owns_device=(lambda _: True) if adapters.cluster is None else adapters.cluster.holds,
    )


def _create_retention_worker(adapters: ServiceAdapters, services: DomainServices) -> RetentionWorker:
    release = adapters.database.release_space
    return RetentionWorker(retention=services.stored_telemetry.retention, release_space=release, wake_event=WakeEvent())


def _create_feed_interest_worker(
    adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents, shared_feed: ClusterReadingFeedWorker | None
) -> DevicesWithSubscribersWorker:
    return DevicesWithSubscribersWorker(
        watched_devices=DevicesWithSubscribersService(**services.shared),
        hub=adapters.feed,
        engine=adapters.engine.engine,
        wake_event=wake_events.feed_interest,
        peer_changes=None if adapters.is_single_instance else EventLogAccessChangeDetector(services.uow),
        remote_filters=tuple if shared_feed is None else shared_feed.filters,
    )
