"""Constructs every background loop of this instance, and says in which order they start. Those that only a cluster has are in
`cluster_workers.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from adapters.storage.sql.probes import session_name
from app.config.settings import Settings
from app.runtime.metrics import UnusableMessageCounter
from app.runtime.supervisor import BackgroundWorker
from app.wiring.adapters import ServiceAdapters
from app.wiring.services import DomainServices
from app.workers.checkpoint import EngineCheckpointWorker
from app.workers.cluster_feed import ClusterReadingFeedWorker
from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.dead_letter_replay import IngestDeadLetterReplayWorker
from app.workers.due import DueWorker, SingleInstanceWorker, WakeEvent, WakeEvents, drain
from app.workers.feed_interest import DevicesWithSubscribersWorker, EventLogAccessChangeDetector
from app.workers.ingest import IngestWorker
from app.workers.instances import DeviceLeaseWorker, EventLogFollower, OtherInstanceEventHandler, PostgresListenerWorker
from app.workers.periodic import (
    ClockWorker,
    DeviceCleanupWorker,
    PeriodicFlushWorker,
    RollupWorker,
    delete_rows_of_deleted_webhooks,
    expire_approvals,
    expire_presence,
    keep_steady_time,
    recover_webhooks,
    seal_event_log,
    write_dropped_messages,
)
from app.workers.retention import DiskSpaceWorker, OldReadingMoverWorker, RetentionWorker
from app.workers.rule_timers import RuleTimerWorker
from app.workers.schedules import DevicePlanWorker, ScheduleWorker
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.commands.dispatch import CommandCrashRecovery
from domain.devices.health import LastSeenBuffer
from domain.feed.interest import DevicesWithSubscribersService
from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.ingest.pipeline import IngestPipeline
from domain.webhooks.delivery import DeletedWebhookCleanup

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.leadership import PostgresCoordinationConnection
    from app.wiring.cluster_workers import ClusterWorkers
    from app.workers.homeassistant import HomeAssistantWorker

ON_ONE_INSTANCE = frozenset(
    {"rollups", "device_cleanup", "webhook_cleanup", "webhook_recovery", "homeassistant", "reading_mover"}
)
"""Workers that serve the whole fleet: in a cluster, the owner of partition 0 runs them."""


class Workers:
    """By name, where the metrics read them or other parts hand them work."""

    def __init__(self, settings: Settings, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents) -> None:
        clock = adapters.clock
        self.wake_events = wake_events
        self.fault_log = UnusableMessageCounter(dropped_messages=services.dropped_messages)
        self.command_dispatch = CommandDispatchWorker(
            dispatch=services.dispatch,
            recovery=None if adapters.cluster else CommandCrashRecovery(uow=services.leader_uow, clock=clock),
            wake_event=wake_events.dispatch,
        )
        self.webhook_delivery = WebhookDeliveryWorker(
            deliveries=services.deliveries, courier=adapters.courier, clock=clock, wake_event=wake_events.deliveries
        )
        self.schedules = ScheduleWorker(
            firing=services.firing, left_edges=services.left_edges, clock=clock, wake_event=wake_events.schedules
        )
        self.rule_timers = RuleTimerWorker(
            engine=adapters.engine.engine,
            ingest=services.ingest,
            uow=services.leader_uow,
            engine_clock=services.engine_clock,
            engine_commit_lock=services.engine_commit_lock,
            absence=services.absence,
            evaluated_until_ms=lambda now_ms: self.ingest.evaluated_until_ms(now_ms),
            wake_event=wake_events.rule_timers,
        )
        self._wire_feed(adapters, services, wake_events)
        self._wire_ingest(adapters, services, wake_events)
        self._wire_stored_telemetry(adapters, services)
        self.homeassistant = _create_homeassistant_worker(settings, adapters, services)
        """None if it is not configured, or if this instance has no broker."""
        self.every_instance = self._every_instance(adapters, services, wake_events)
        self.leader_only = self._leader_only(adapters, services, wake_events)
        self.log_follower: EventLogFollower | None = None
        self.postgres_listener: PostgresCoordinationConnection | None = None
        self.device_lease: DeviceLeaseWorker | None = None
        """Set when other instances may take the devices over."""
        if services.followed_feed is not None:
            self._follow_event_log(settings, adapters, services, wake_events)

    def _wire_feed(self, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents) -> None:
        self.shared_feed: ClusterReadingFeedWorker | None = None
        """Set where other processes send readings to the feed clients of this one: in a cluster, and beside other worker
        processes."""
        if adapters.feed_bus is not None:
            self.shared_feed = ClusterReadingFeedWorker(
                instance=adapters.feed_name,
                bus=adapters.feed_bus,
                hub=adapters.feed,
                clock=adapters.clock,
                interest_wake=wake_events.feed_interest,
                commit_lock=services.bounded_commit_lock,
            )
            if services.followed_feed is not None:
                services.followed_feed.on_reading = self.shared_feed.publish
                services.followed_feed.on_store_time = self.shared_feed.set_store_time
        self.feed_interest = DevicesWithSubscribersWorker(
            watched_devices=DevicesWithSubscribersService(**services.shared),
            hub=adapters.feed,
            engine=adapters.engine.engine,
            wake_event=wake_events.feed_interest,
            peer_changes=None if adapters.is_single_instance else EventLogAccessChangeDetector(uow=services.uow),
            remote_filters=tuple if self.shared_feed is None else self.shared_feed.filters,
        )

    def _wire_ingest(self, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents) -> None:
        last_seen = LastSeenBuffer()
        pipeline_parts: dict[str, Any] = {
            "uow": services.leader_uow,
            "link": adapters.link,
            "engine": adapters.engine.engine,
            "engine_clock": services.engine_clock,
            "make_batch": adapters.engine.make_batch,
            "device_messages": services.device_messages,
            "ingest": services.ingest,
            "on_devices_ready": self.command_dispatch.on_devices_ready,
            "on_devices_subscribed": self.command_dispatch.on_devices_subscribed,
        }
        ingest_parts: dict[str, Any] = {
            "engine_commit_lock": services.engine_commit_lock,
            "last_seen": last_seen,
            "fault_log": self.fault_log,
            "clock_offsets": services.clock_offsets,
            "dead_letters": services.dead_letters,
            "ensure_interest_current": self.feed_interest.ensure_current,
            "rule_timer_wake": wake_events.rule_timers,
        }
        self.pipeline = IngestPipeline(**pipeline_parts)
        self.ingest: IngestWorker
        self.cluster: ClusterWorkers | None = None
        if adapters.cluster is None or self.shared_feed is None:
            self.ingest = IngestWorker(link=adapters.link, pipeline=self.pipeline, **ingest_parts)
        else:
            from app.wiring.cluster_workers import ClusterWorkers  # a single instance needs nothing of it

            self.cluster = ClusterWorkers(
                adapters, services, adapters.cluster, self.feed_interest, self.shared_feed, pipeline_parts, ingest_parts
            )
            self.ingest = self.cluster.ingest
        self.checkpoint = EngineCheckpointWorker(
            engine=adapters.engine.engine,
            uow=services.leader_uow,
            last_seen=last_seen,
            clock_offsets=services.clock_offsets,
            engine_commit_lock=services.engine_commit_lock,
            owned=None if adapters.cluster is None else adapters.cluster.ownership,
        )

    def _wire_stored_telemetry(self, adapters: ServiceAdapters, services: DomainServices) -> None:
        telemetry = services.stored_telemetry
        self.rollups = RollupWorker(rollups=telemetry.rollups)
        self.retention = RetentionWorker(
            retention=telemetry.retention,
            release_space=adapters.database.release_space,
            wake_event=WakeEvent(),
            is_clock_certain=lambda: services.clock_watch.is_certain,
        )
        self.reading_mover: OldReadingMoverWorker | None = None
        if telemetry.mover is not None:
            self.reading_mover = OldReadingMoverWorker(
                mover=telemetry.mover, clock=adapters.clock, is_clock_certain=lambda: services.clock_watch.is_certain
            )

    def _every_instance(
        self, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents
    ) -> tuple[BackgroundWorker, ...]:
        clock, mails, approvals = adapters.clock, services.notifications.delivery, services.approvals
        expire = drain(approvals.expire_due, approvals.next_expiry_ms, clock.now_ms)
        flushes = (
            services.callers.flush_last_used,
            services.logins.flush_throttled_logins,
            services.denial_log.flush,
            services.broker_refusals.write_pending,
        )
        return (
            DueWorker("steady_time", partial(keep_steady_time, services.steady_time)),
            ClockWorker(watch=services.clock_watch),
            DueWorker("notifications", drain(mails.send_due, mails.next_due_ms, clock.steady_ms), wake_events.notifications),
            PeriodicFlushWorker(flushes=flushes),
            self.retention,
            DiskSpaceWorker(disk=adapters.disk, retention_wake=self.retention.wake_event),
            DueWorker("approvals", partial(expire_approvals, services.clock_watch, expire), wake_events.approvals),
        )

    def _leader_only(
        self, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents
    ) -> tuple[BackgroundWorker, ...]:
        """Of the instance that holds the devices; in a cluster, of each."""
        clock, cluster = adapters.clock, adapters.cluster
        webhook_rows = DeletedWebhookCleanup(uow=services.uow)
        workers: list[BackgroundWorker] = [
            self.rollups,
            *([] if self.reading_mover is None else [self.reading_mover]),
            IngestDeadLetterReplayWorker(
                dead_letters=services.dead_letters,
                pipeline=self.pipeline,
                engine=adapters.engine.engine,
                make_batch=adapters.engine.make_batch,
                engine_commit_lock=services.engine_commit_lock,
                rule_timer_wake=wake_events.rule_timers,
                owns_device=(lambda _: True) if cluster is None else cluster.holds,
            ),
            DevicePlanWorker(plans=services.device_plans, queue=services.device_plan_queue),
            DueWorker("presence", partial(expire_presence, services.presence, clock), wake_events.presence),
            DeviceCleanupWorker(
                erasure=services.device_erasure,
                credential_sync=services.credential_sync,
                clock=clock,
                wake_event=wake_events.device_cleanup,
            ),
            DueWorker("audit_seals", partial(seal_event_log, services.audit_seals, clock)),
            DueWorker(
                "dropped_messages", partial(write_dropped_messages, services.dropped_messages), wake_events.dropped_messages
            ),
            DueWorker("webhook_cleanup", partial(delete_rows_of_deleted_webhooks, webhook_rows)),
            DueWorker("webhook_recovery", partial(recover_webhooks, services.recoveries), wake_events.recoveries),
            *([] if self.homeassistant is None else [self.homeassistant]),
        ]
        if cluster is None:
            return tuple(workers)
        return tuple(
            SingleInstanceWorker(worker=each, is_chosen=lambda: 0 in cluster.ownership) if each.name in ON_ONE_INSTANCE else each
            for each in workers
        )

    def _follow_event_log(
        self, settings: Settings, adapters: ServiceAdapters, services: DomainServices, wake_events: WakeEvents
    ) -> None:
        """Other instances may write to the same database."""
        from adapters.storage.sql.postgres.leadership import DeviceLeaderLock, PostgresCoordinationConnection

        assert services.followed_feed is not None  # noqa: S101 - the caller's condition
        peer_changes = OtherInstanceEventHandler(
            uow=services.uow,
            rules=services.rules,
            credential_sync=services.credential_sync,
            dispatch=services.dispatch,
            device_plans=services.device_plan_queue,
            execution_waiter=adapters.execution_waiter,
            approval_waiter=adapters.approval_waiter,
            deliveries=self.webhook_delivery,
            wake_events=wake_events,
        )
        self.log_follower = EventLogFollower(
            uow=services.uow,
            feed=services.followed_feed,
            peer_changes=peer_changes,
            wake_event=wake_events.event_log,
            life=adapters.life,
        )
        leader_lock = None if adapters.fence is None else DeviceLeaderLock(adapters.fence)
        self.postgres_listener = PostgresCoordinationConnection(
            settings.effective_database_url,
            on_notify=wake_events.event_log.set,
            process_id=adapters.process_id,
            session_name=session_name(adapters.front),
            leader_lock=leader_lock,
            on_silence=adapters.database.abort_connections,
        )
        services.followed_feed.notify_instances = self.postgres_listener.request_notify
        if self.cluster is not None:
            self.device_lease = DeviceLeaseWorker(
                link=adapters.link,
                lease_remaining_s=self.cluster.lease.remaining_s,
                on_resumed=services.presence.on_suspension_ended,
            )
        elif leader_lock is not None:
            self.device_lease = DeviceLeaseWorker(link=adapters.link, lease_remaining_s=leader_lock.remaining_s)

    def in_start_order(self, *, holds_devices: bool) -> list[BackgroundWorker]:
        """All workers of this instance. A sender starts before the workers that give it work, and the checkpoint stops after the
        ingest worker that feeds it (workers stop in the reverse order). An instance without devices neither sends to them nor
        sets them online or offline."""
        log_workers: list[BackgroundWorker] = (
            []
            if self.log_follower is None or self.postgres_listener is None
            else [PostgresListenerWorker(listener=self.postgres_listener), self.log_follower]
        )
        shared: list[BackgroundWorker] = [] if self.shared_feed is None else [self.shared_feed]
        if not holds_devices:
            return [*log_workers, *shared, self.feed_interest, self.webhook_delivery, *self.every_instance, self.schedules]
        senders: list[BackgroundWorker] = [self.checkpoint, self.feed_interest, self.webhook_delivery, self.command_dispatch]
        others = [*self.every_instance, *self.leader_only, self.rule_timers, self.schedules, self.ingest]
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


def _create_homeassistant_worker(
    settings: Settings, adapters: ServiceAdapters, services: DomainServices
) -> HomeAssistantWorker | None:
    url, key = settings.homeassistant, settings.homeassistant_key
    if url is None or key is None or not settings.has_broker:
        return None
    from adapters.mqtt.homeassistant import HomeAssistantMqttClient
    from app.workers.homeassistant import HomeAssistantWorker
    from domain.homeassistant.bridge import HomeAssistantBridge

    bridge = HomeAssistantBridge(
        uow=services.uow,
        clock=adapters.clock,
        audience=FeedSnapshotAndReplayService(uow=services.uow, clock=adapters.clock),
        authenticator=services.callers,
        commands=services.commands,
        latest_values=adapters.engine.engine,
        denied_requests=services.denial_log,
        secret=key.get_secret_value(),
        discovery_prefix=settings.homeassistant_prefix,
    )
    address = urlsplit(url.get_secret_value())
    tls = address.scheme == "mqtts"
    user, password = (None if part is None else unquote(part) for part in (address.username, address.password))
    port = address.port or (8883 if tls else 1883)
    host = address.hostname or "127.0.0.1"
    broker = HomeAssistantMqttClient(host=host, port=port, username=user, password=password, tls=tls)
    return HomeAssistantWorker(bridge=bridge, broker=broker, hub=adapters.feed)
