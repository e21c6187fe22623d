"""Registers the metrics of every part; docs/how-to/operate.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from app.runtime.metrics import BrokerMetricsCollector, MetricsRegistry, age_s
from app.runtime.output import dropped_lines
from app.version import VERSION
from app.wiring.adapters import ServiceAdapters
from app.wiring.program import ComposedApplication
from app.wiring.services import DomainServices
from app.wiring.workers import Workers
from app.workers.retention import OldReadingMoverWorker
from domain.kernel.clock import SECOND_MS

if TYPE_CHECKING:
    from app.wiring.cluster import ClusterComponents
    from app.wiring.cluster_workers import ClusterWorkers


def register_metrics(program: ComposedApplication) -> None:
    metrics, adapters, services, workers = program.metrics, program.adapters, program.services, program.workers
    metrics.set_build_info(version=VERSION, engine=adapters.engine.name)
    metrics.register_collector(BrokerMetricsCollector(read=adapters.link.stats))
    metrics.register_gauge("disk_free_bytes", "Free bytes on the file system of the data directory.", adapters.disk.free_bytes)
    metrics.register_counter("log_lines_dropped", "Log lines that were dropped, because nobody read them in time.", dropped_lines)
    _register_worker_process(metrics, program)
    _register_ingest(metrics, workers)
    _register_moved_readings(metrics, workers.reading_mover)
    if adapters.cluster is not None and workers.cluster is not None:
        _register_cluster(metrics, adapters.cluster, workers.cluster)
    if workers.homeassistant is not None:
        register_homeassistant_metrics(metrics, workers.homeassistant.metrics)
    if workers.device_lease is not None:
        lease = workers.device_lease
        metrics.register_counter(
            "device_suspensions", "Times that the instance disconnected its devices without a lease.", lambda: lease.suspensions
        )
    _register_clocks(metrics, services)
    _register_dead_letters(metrics, services)
    _register_commands(metrics, adapters, services, workers)
    _register_deliveries(metrics, adapters, workers)
    _register_connections(metrics, program)
    _register_mails(metrics, adapters)
    _register_notifications(metrics, services)
    _register_audit_seals(metrics, adapters, services)
    metrics.register_gauge("feed_clients", "Connected clients of the live feed.", lambda: adapters.feed.clients)
    metrics.register_counter("feed_events", "Events given to the live feed.", lambda: adapters.feed.published)
    metrics.register_counter(
        "feed_overflows", "Feed clients whose queue overflowed and was cleared.", lambda: adapters.feed.dropped
    )
    metrics.register_counter(
        "worker_failures",
        "Failures of each background worker; the supervisor restarts it.",
        lambda: {supervised.worker.name: supervised.failures for supervised in program.supervisor.supervised},
        label="worker",
    )


def _register_worker_process(metrics: MetricsRegistry, program: ComposedApplication) -> None:
    worker, shared_feed = program.worker, program.workers.shared_feed
    if worker is not None:
        metrics.register_counter(
            "worker_process_restarts",
            "Times that this worker process was replaced.",
            lambda: {str(worker.number): worker.restarts},
            label="process",
        )
    if shared_feed is not None:
        metrics.register_counter(
            "feed_resumes",
            "How often clients of readings had to resume, because a message of another instance, or the instance, was lost.",
            lambda: shared_feed.gaps,
        )


def _register_connections(metrics: MetricsRegistry, program: ComposedApplication) -> None:
    connections = program.http_connections
    metrics.register_gauge(
        "http_connections",
        "Open HTTP connections: silent (no request yet), idle (between two requests), active (a request in hand, or the feed).",
        connections.connection_counts,
        label="state",
    )
    metrics.register_counter(
        "http_connections_refused",
        "HTTP connections closed at once, by reason.",
        lambda: dict(connections.refused),
        label="reason",
    )
    metrics.register_counter(
        "http_connections_evicted",
        "HTTP connections closed to make room for another, by what they were.",
        lambda: dict(connections.evicted),
        label="state",
    )
    metrics.register_gauge("http_banned_addresses", "Addresses that HTTP refuses at present.", connections.banned_count)
    metrics.register_counter(
        "feed_connections_refused",
        "Feed connections refused by a limit, by reason.",
        lambda: dict(program.feed_endpoint.limiter.refused),
        label="reason",
    )


def _register_mails(metrics: MetricsRegistry, adapters: ServiceAdapters) -> None:
    queue = adapters.mail_queue
    metrics.register_gauge("background_mails_pending", "Mails that are being sent in the background.", lambda: queue.pending)
    metrics.register_counter(
        "background_mails",
        "Mails of the background queue: sent, not accepted by the mail server (failed), too many at once (dropped).",
        lambda: {"sent": queue.sent, "failed": queue.failed, "dropped": queue.dropped},
        label="outcome",
    )


def _register_notifications(metrics: MetricsRegistry, services: DomainServices) -> None:
    delivery, observer = services.notifications.delivery, services.notification_observer
    metrics.register_gauge(
        "notifications_pending", "Notifications that are owed; at most 30 seconds old.", lambda: delivery.pending
    )
    metrics.register_counter(
        "notifications_dropped", "Notifications not written because 500 were owed to their channel.", lambda: observer.dropped
    )
    metrics.register_counter(
        "notifications_sent",
        "Notifications that a channel accepted.",
        lambda: {kind.lower(): sent for kind, sent in delivery.sent_by_channel.items()},
        label="channel",
    )
    metrics.register_counter(
        "notifications_unsent",
        "Attempts that failed (tried again) or were refused, destinations that are gone, and notifications given up.",
        lambda: delivery.unsent_by_outcome,
        label="outcome",
    )


def _register_ingest(metrics: MetricsRegistry, workers: Workers) -> None:
    ingest, rollups, retention = workers.ingest, workers.rollups, workers.retention
    metrics.register_counter("ingest_batches", "Stored batches of device messages.", lambda: ingest.batches)
    metrics.register_counter(
        "ingest_messages",
        "Messages from devices by kind.",
        lambda: {"telemetry": ingest.messages, "event": ingest.events},
        label="kind",
    )
    metrics.register_counter("ingest_readings", "Telemetry values.", lambda: ingest.readings)
    metrics.register_counter(
        "ingest_retries", "Attempts to store a batch that failed because the database did not answer.", lambda: ingest.retries
    )
    metrics.register_counter(
        "ingest_lost", "Connects, disconnects and subscriptions that could not be stored.", lambda: ingest.lost
    )
    metrics.register_counter(
        "ingest_faults", "Unusable messages from devices, by error code.", lambda: dict(workers.fault_log.counts), label="code"
    )
    metrics.register_gauge(
        "ingest_batch_age_seconds", "Age of the batch that is being stored; 0 when there is none.", lambda: ingest.batch_age_s
    )
    metrics.register_counter(
        "rule_timers_refused",
        "Due rules of a device that the database refused; they are evaluated again.",
        lambda: workers.rule_timers.refused,
    )
    metrics.register_counter("rollups", "Hourly rollups: hours of telemetry of a device.", lambda: rollups.processed_hours)
    metrics.register_counter(
        "retention_deleted_rows", "Rows deleted because their retention period ended.", lambda: retention.deleted_rows
    )


def _register_moved_readings(metrics: MetricsRegistry, mover: OldReadingMoverWorker | None) -> None:
    if mover is not None:
        metrics.register_counter("readings_moved", "Messages moved to ClickHouse.", lambda: mover.moved_messages)
        metrics.register_gauge(
            "readings_moved_behind_seconds", "Time since all readings that were due were in ClickHouse.", lambda: mover.behind_s
        )


def _register_clocks(metrics: MetricsRegistry, services: DomainServices) -> None:
    clock, offsets = services.engine_clock, services.clock_offsets
    metrics.register_counter("clock_steps", "Times that the clock of the service was set.", lambda: clock.step_count)
    watch = services.clock_watch
    metrics.register_counter("clock_doubts", "Times that the clock of the machine was not believed.", lambda: watch.doubt_count)
    metrics.register_gauge(
        "clock_doubted", "1 while the clock of the machine is not believed.", lambda: int(not watch.is_certain)
    )
    metrics.register_gauge(
        "devices_clock_skewed", "Devices whose clock is wrong by more than two minutes.", lambda: offsets.skewed_devices
    )
    metrics.register_counter(
        "ingest_clock_ahead",
        "Reports, per batch and device, of a timestamp more than two minutes ahead.",
        lambda: offsets.skewed_messages,
    )


def _register_dead_letters(metrics: MetricsRegistry, services: DomainServices) -> None:
    dead_letters = services.dead_letters
    metrics.register_gauge(
        "dead_letters", "Messages that are set aside because the database refused them.", lambda: dead_letters.count
    )
    metrics.register_counter(
        "dead_letter_changes",
        "Messages set aside, stored by a replay, and deleted because too many were set aside.",
        lambda: {"added": dead_letters.added, "replayed": dead_letters.replayed, "discarded": dead_letters.discarded},
        label="change",
    )


def _register_commands(metrics: MetricsRegistry, adapters: ServiceAdapters, services: DomainServices, workers: Workers) -> None:
    dispatch, queue, schedules = services.dispatch, services.dispatch_queue, workers.schedules
    metrics.register_collector(services.execution_waiter)
    metrics.register_counter("commands_sent", "Commands sent to devices.", lambda: dispatch.sent)
    metrics.register_counter("commands_resent", "Commands sent again after a device reconnected.", lambda: dispatch.resent)
    metrics.register_counter(
        "commands_expired_in_queue",
        "Commands of connected devices that expired before they could be sent: a backlog was longer than their deadlines.",
        lambda: dispatch.expired_in_queue,
    )
    metrics.register_counter(
        "command_reports_ignored",
        "Command results from devices that changed nothing, by reason.",
        lambda: dict(services.reports.ignored),
        label="reason",
    )
    metrics.register_gauge("dispatch_queue_commands", "Commands that wait for the dispatcher.", lambda: len(queue))
    metrics.register_gauge(
        "dispatch_queue_age_seconds",
        "Age of the oldest command that waits for the dispatcher; 0 when there is none.",
        lambda: age_s(queue.oldest_created_ms, adapters.clock.now_ms()),
    )
    metrics.register_gauge(
        "approvals_waiting",
        "Commands that wait for approval, in all accounts; at most 30 seconds old.",
        lambda: services.approvals.pending,
    )
    metrics.register_counter("schedule_edges", "Schedule edges decided on time or late.", lambda: schedules.fired)
    metrics.register_counter("schedule_quarantined", "Slots quarantined after an error.", lambda: schedules.quarantined)
    metrics.register_gauge(
        "schedule_lateness_seconds", "How late the last due edge was decided.", lambda: schedules.lateness_ms / SECOND_MS
    )


def _register_deliveries(metrics: MetricsRegistry, adapters: ServiceAdapters, workers: Workers) -> None:
    deliveries = workers.webhook_delivery
    metrics.register_gauge("webhook_attempts_inflight", "Webhook attempts without a result yet.", lambda: deliveries.in_flight)
    metrics.register_counter(
        "webhook_attempts",
        "Webhook attempts by outcome.",
        lambda: {
            "succeeded": deliveries.succeeded,
            "failed": deliveries.failed,
            "cancelled": deliveries.cancelled,
            "postponed": deliveries.postponed,
        },
        label="outcome",
    )
    metrics.register_gauge(
        "webhook_queue_age_seconds",
        "How long the earliest due delivery has been overdue; 0 when none is.",
        lambda: age_s(deliveries.next_due_ms, adapters.clock.steady_ms()),
    )


def _register_audit_seals(metrics: MetricsRegistry, adapters: ServiceAdapters, services: DomainServices) -> None:
    seals = services.audit_seals
    metrics.register_counter("audit_seals", "Accounts whose event log was sealed.", lambda: seals.sealed)
    metrics.register_gauge(
        "audit_seal_age_seconds",
        "Time since the event log was last sealed; it is done every hour.",
        lambda: age_s(seals.last_sealed_ms, adapters.clock.now_ms()),
    )


def _register_cluster(metrics: MetricsRegistry, cluster: ClusterComponents, workers: ClusterWorkers) -> None:
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
