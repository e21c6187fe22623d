"""What `/metrics` shows beside the HTTP requests."""

from __future__ import annotations

from app.runtime.broker_metrics import BrokerMetricsCollector
from app.wiring.program import Program


def register_metrics(program: Program) -> None:
    """Every figure `/metrics` shows beside the requests."""
    uplink, deliveries, services = program.workers.ingest, program.workers.webhook_delivery, program.services
    metrics, adapters = program.metrics, program.adapters
    metrics.register_gauge("link", "The device link's counters.", adapters.link.stats)
    metrics.register_collector(BrokerMetricsCollector(adapters.link.stats))
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
        "feed", "Live feed.", lambda: {key: getattr(adapters.feed, key) for key in ("clients", "published", "dropped")}
    )
    metrics.register_gauge(
        "worker_failures",
        "How often each worker failed and was started again.",
        lambda: {watch.worker.name: watch.failures for watch in program.supervisor.supervised},
    )
