"""Registers the metrics of an instance of a cluster."""

from __future__ import annotations

from app.runtime.metrics_registry import MetricsRegistry
from app.wiring.cluster import ClusterComponents
from app.wiring.composed_application import ClusterWorkers


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
