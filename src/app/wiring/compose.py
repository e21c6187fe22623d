"""The one place where things are made and joined. Nothing here opens anything: `lifecycle.py` starts and stops it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quart import Quart

from app.config.settings import Settings
from app.runtime.broker_metrics import BrokerMetricsCollector
from app.runtime.metrics import Metrics
from app.runtime.peer_changes import PeerChangeHandler
from app.runtime.supervisor import Supervisor, Worker
from app.wiring.adapters import Adapters
from app.wiring.homeassistant import create_homeassistant_workers
from app.wiring.http import create_http_app
from app.wiring.services import Services, WakeEvents
from app.workers.approval_expiry import ApprovalExpiryWorker
from app.workers.checkpoint import CheckpointWorker
from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.device_cleanup import DeviceCleanupWorker
from app.workers.fault_log import FaultLog
from app.workers.feed_interest import FeedInterestWorker
from app.workers.ingest import IngestWorker
from app.workers.last_seen import LastSeenBuffer
from app.workers.log_follower import EventLogFollower, PostgresListenerWorker
from app.workers.periodic_flush import PeriodicFlushWorker
from app.workers.presence import PresenceWorker
from app.workers.retention import RetentionWorker
from app.workers.rollups import RollupWorker
from app.workers.rule_timers import RuleTimerWorker
from app.workers.schedules import DevicePlanWorker, ScheduleWorker
from app.workers.wake_event import WakeEvent
from app.workers.webhook_cleanup import WebhookCleanupWorker
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.feed.interest import LiveSubscriptions
from domain.ingest.pipeline import IngestPipeline
from domain.kernel.errors import Unavailable
from domain.webhooks.cleanup import WebhookCleanup

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.notifications import PostgresListener


@dataclass(slots=True)
class Workers:
    """By name, because others ask them for their figures or hand them work."""

    ingest: IngestWorker
    webhook_delivery: WebhookDeliveryWorker
    command_dispatch: CommandDispatchWorker
    schedules: ScheduleWorker
    checkpoint: CheckpointWorker
    feed_interest: FeedInterestWorker
    fault_log: FaultLog
    leader_only: tuple[Worker, ...]
    rollups: RollupWorker
    retention: RetentionWorker
    every_instance: tuple[Worker, ...]
    log_follower: EventLogFollower | None = None
    postgres_listener: PostgresListener | None = None

    def in_start_order(self, *, holds_devices: bool) -> list[Worker]:
        """What sends stands before what makes it send, and the checkpoint is stopped after the uplink that feeds it. Without
        devices there is nobody to send to, and whether they are online is not ours to say."""
        between: list[Worker] = (
            []
            if self.log_follower is None or self.postgres_listener is None
            else [PostgresListenerWorker(self.postgres_listener), self.log_follower]
        )
        if not holds_devices:
            return [*between, self.feed_interest, self.webhook_delivery, *self.every_instance, self.schedules]
        sending: list[Worker] = [self.checkpoint, self.feed_interest, self.webhook_delivery, self.command_dispatch]
        return [*between, *sending, *self.every_instance, *self.leader_only, self.schedules, self.ingest]

    def start_on_leadership(self) -> list[Worker]:
        """What is added when the devices become ours while we run."""
        return [self.checkpoint, self.command_dispatch, *self.leader_only, self.ingest]


@dataclass(slots=True)
class Program:
    settings: Settings
    adapters: Adapters
    services: Services
    workers: Workers
    supervisor: Supervisor
    metrics: Metrics
    http_app: Quart

    async def readiness_errors(self) -> Mapping[str, str]:
        """What ails the service now, by part; empty when it is ready."""
        found = {f"worker {name}": trouble for name, trouble in self.supervisor.current_errors().items()}
        try:
            await self.adapters.database.check()
        except Unavailable as error:
            found["database"] = error.message
        if self.adapters.link.stats().get("stopped"):
            found["broker"] = "The device link is not running."
        return found


def compose(settings: Settings) -> Program:
    """Raises StartRefused, EngineMissing, EngineStale, DatabaseUnusableError."""
    bells = WakeEvents()
    outside = Adapters(settings, on_interest=bells.feed_interest.set)
    services = Services(settings, outside, bells)
    loops = _create_workers(outside, services, bells)
    _add_cluster_workers(settings, outside, services, bells, loops)
    metrics = Metrics()
    loops.leader_only += create_homeassistant_workers(settings, outside, services, metrics)
    supervisor = Supervisor(loops.in_start_order(holds_devices=outside.is_leader))
    program = Program(settings, outside, services, loops, supervisor, metrics, http_app=Quart("unused"))
    program.http_app = create_http_app(program)
    _register_metrics(program)
    return program


def _create_workers(outside: Adapters, services: Services, bells: WakeEvents) -> Workers:
    clock, uow, engine = outside.clock, services.leader_uow, outside.engine.engine
    last_seen, faults = LastSeenBuffer(), FaultLog(clock)
    dispatch = CommandDispatchWorker(dispatch=services.dispatch, clock=clock, bell=bells.dispatch)
    rollups, retention = RollupWorker(rollups=services.rollups), RetentionWorker(retention=services.retention)
    return Workers(
        ingest=IngestWorker(
            link=outside.link,
            pipeline=_create_ingest_pipeline(outside, services, dispatch),
            engine_commit_lock=services.engine_commit_lock,
            last_seen=last_seen,
            fault_log=faults,
            rule_timer_wake=bells.rule_timers,
        ),
        webhook_delivery=WebhookDeliveryWorker(
            deliveries=services.deliveries, courier=outside.courier, clock=clock, bell=bells.deliveries
        ),
        command_dispatch=dispatch,
        schedules=ScheduleWorker(firing=services.firing, clock=clock, bell=bells.schedules),
        checkpoint=CheckpointWorker(engine=engine, uow=uow, last_seen=last_seen, engine_commit_lock=services.engine_commit_lock),
        feed_interest=_create_feed_interest_worker(outside, services, bells),
        fault_log=faults,
        rollups=rollups,
        retention=retention,
        every_instance=(
            PeriodicFlushWorker(
                flushes=(services.callers.flush_last_used, services.sessions.flush_throttled_logins, services.denial_log.flush)
            ),
            retention,
            ApprovalExpiryWorker(approvals=services.approvals, clock=clock, bell=bells.approvals),
        ),
        leader_only=(rollups, *_create_leader_workers(outside, services, bells)),
    )


def _create_leader_workers(outside: Adapters, services: Services, bells: WakeEvents) -> Sequence[Worker]:
    """What only the instance does that holds the devices."""
    clock = outside.clock
    return (
        DevicePlanWorker(plans=services.device_plans, outbox=services.device_plan_queue),
        PresenceWorker(presence=services.presence, clock=clock, bell=bells.presence),
        DeviceCleanupWorker(
            erasure=services.device_erasure, admission=services.credential_sync, clock=clock, bell=bells.device_cleanup
        ),
        _create_rule_timer_worker(outside, services, bells),
        WebhookCleanupWorker(leftovers=WebhookCleanup(uow=services.uow), bell=WakeEvent()),
    )


def _add_cluster_workers(settings: Settings, outside: Adapters, services: Services, bells: WakeEvents, loops: Workers) -> None:
    """Where other instances may write to the database: the log is followed."""
    if services.followed_feed is not None:
        from adapters.storage.sql.postgres.notifications import PostgresListener  # asyncpg, which SQLite does without

        neighbours = PeerChangeHandler(
            services=services, bells=bells, outcomes=outside.execution_waiter, deliveries=loops.webhook_delivery
        )
        loops.log_follower = EventLogFollower(
            uow=services.uow, feed=services.followed_feed, neighbours=neighbours, bell=bells.event_log
        )
        loops.postgres_listener = PostgresListener(
            settings.effective_database_url, heard=bells.event_log.set, holds_devices=settings.has_broker, fence=outside.fence
        )


def _create_ingest_pipeline(outside: Adapters, services: Services, dispatch: CommandDispatchWorker) -> IngestPipeline:
    return IngestPipeline(
        uow=services.leader_uow,
        link=outside.link,
        engine=outside.engine.engine,
        make_batch=outside.engine.make_batch,
        device_messages=services.device_messages,
        ingest=services.ingest,
        on_devices_ready=dispatch.on_devices_ready,
        on_devices_subscribed=dispatch.on_devices_subscribed,
    )


def _create_rule_timer_worker(outside: Adapters, services: Services, bells: WakeEvents) -> RuleTimerWorker:
    return RuleTimerWorker(
        engine=outside.engine.engine,
        ingest=services.ingest,
        uow=services.leader_uow,
        clock=outside.clock,
        engine_commit_lock=services.engine_commit_lock,
        wake_event=bells.rule_timers,
    )


def _create_feed_interest_worker(outside: Adapters, services: Services, bells: WakeEvents) -> FeedInterestWorker:
    return FeedInterestWorker(
        live_subscriptions=LiveSubscriptions(uow=services.uow, clock=outside.clock),
        hub=outside.feed,
        engine=outside.engine.engine,
        wake_event=bells.feed_interest,
    )


def _register_metrics(program: Program) -> None:
    """Every figure `/metrics` shows beside the requests."""
    uplink, deliveries, services = program.workers.ingest, program.workers.webhook_delivery, program.services
    metrics, outside = program.metrics, program.adapters
    metrics.register_gauge("link", "The device link's counters.", outside.link.stats)
    metrics.register_collector(BrokerMetricsCollector(outside.link.stats))
    metrics.register_gauge(
        "uplink_faults", "What devices sent that could not be used.", lambda: dict(program.workers.fault_log.counts)
    )
    metrics.register_gauge(
        "uplink",
        "Batches, messages, readings and events taken in.",
        lambda: {name: getattr(uplink, name) for name in ("batches", "messages", "readings", "events", "retries", "lost")},
    )
    metrics.register_gauge(
        "upkeep",
        "Hours of devices summed up, and rows whose time was over.",
        lambda: {
            "hours_summed": program.workers.rollups.processed_hours,
            "rows_forgotten": program.workers.retention.deleted_rows,
        },
    )
    metrics.register_gauge(
        "deliveries",
        "Webhook attempts.",
        lambda: {name: getattr(deliveries, name) for name in ("under_way", "succeeded", "failed", "cut_short", "put_off")},
    )
    metrics.register_gauge(
        "commands",
        "Commands handed to devices, and results that changed nothing.",
        lambda: {"sent": services.dispatch.sent, "resent": services.dispatch.resent, **dict(services.reports.ignored)},
    )
    metrics.register_gauge(
        "feed", "Live feed.", lambda: {key: getattr(outside.feed, key) for key in ("clients", "published", "dropped")}
    )
    metrics.register_gauge(
        "worker_failures",
        "How often each worker failed and was started again.",
        lambda: {watch.worker.name: watch.failures for watch in program.supervisor.supervised},
    )
