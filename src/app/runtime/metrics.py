"""The metrics of `/metrics`, in the Prometheus text format.

Names follow https://prometheus.io/docs/practices/naming: one unit per metric, base units, counters end in `_total`. Requests and
commands are counted as they happen; all other values are read at the scrape.

Beside the registry, what counts commands, broker and unusable messages.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from domain.commands.model import Execution, ExecutionStatus
from domain.commands.ports import ExecutionWaiter
from domain.devices.health import DroppedMessageService
from domain.devices.model import Device, DroppedMessages
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import ExecutionId
from domain.kernel.ports import ResultWaitHandle

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "latchboard_"
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_COMMAND_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""From a device on the local network to one that connects hours later: a command may wait up to a day."""
MAX_TRACKED_DEVICES = 10_000
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

MetricFamily = type[GaugeMetricFamily] | type[CounterMetricFamily]
MetricReader = Callable[[], float | Mapping[str, float] | None]
"""A value, or values by label value. With None the metric is left out."""

log = structlog.get_logger("ingest")


@service
class ReadAtScrapeCollector(Collector):
    """One metric whose value is read at the scrape. `label` names the label of a reader that returns a mapping."""

    family: MetricFamily
    name: str
    help_text: str
    read: MetricReader
    label: str | None = None

    def describe(self) -> Iterable[Metric]:
        yield self.family(self.name, self.help_text)

    def collect(self) -> Iterable[Metric]:
        value = self.read()
        if value is None:
            return
        values = value if isinstance(value, Mapping) else {"": value}
        yield labelled_family(self.family, self.name, self.help_text, self.label, values)


class MetricsRegistry:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a creation time for each counter would double the page
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._requests = Counter(
            "latchboard_http_requests",
            "HTTP requests by method, route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "latchboard_http_request_seconds",
            "Duration of HTTP requests by route.",
            ["route"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._label_cache: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one HTTP request. Unknown paths share one label value, and so do unknown methods: callers choose them freely, and
        each label value takes memory until the process ends."""
        labels = (method if method in _METHODS else "(other)", route or "(none)", status)
        cached = self._label_cache.get(labels)
        if cached is None:
            requests = self._requests.labels(labels[0], labels[1], str(status))
            cached = self._label_cache[labels] = requests, self._request_seconds.labels(labels[1])
        cached[0].inc()
        cached[1].observe(seconds)

    def set_build_info(self, *, version: str, engine: str) -> None:
        labels = {"version": version, "engine": engine}
        build_info = Gauge(
            "latchboard_build_info", "Version and engine of this process; the value is 1.", labels, registry=self._registry
        )
        build_info.labels(**labels).set(1)

    def register_gauge(self, name: str, help_text: str, read: MetricReader, *, label: str | None = None) -> None:
        """Register `latchboard_<name>`, which may go up and down."""
        self._register(GaugeMetricFamily, name, help_text, read, label)

    def register_counter(self, name: str, help_text: str, read: MetricReader, *, label: str | None = None) -> None:
        """Register `latchboard_<name>_total`, which only grows."""
        self._register(CounterMetricFamily, name, help_text, read, label)

    def _register(self, family: MetricFamily, name: str, help_text: str, read: MetricReader, label: str | None) -> None:
        self.register_collector(
            ReadAtScrapeCollector(family=family, name=PREFIX + name, help_text=help_text, read=read, label=label)
        )

    def register_collector(self, collector: Collector) -> None:
        self._registry.register(collector)

    def render(self) -> bytes:
        return generate_latest(self._registry)


def labelled_family(family: MetricFamily, name: str, help_text: str, label: str | None, values: Mapping[str, float]) -> Metric:
    """A metric with one sample per entry of `values`: label value → value. Without a label it has one entry."""
    metric = family(name, help_text, labels=[label] if label else [])
    for label_value, value in values.items():
        metric.add_metric([label_value] if label else [], value)
    return metric


def age_s(since_ms: int | None, now_ms: int) -> float:
    """0 when there is nothing (None), or when the time is still to come."""
    return 0.0 if since_ms is None else max(0, now_ms - since_ms) / SECOND_MS


class MeasuredExecutionWaiter(Collector):
    """An ExecutionWaiter that measures each finished execution of this instance and passes everything on to `waiter`."""

    def __init__(self, waiter: ExecutionWaiter) -> None:
        self._waiter = waiter
        self._finished = Counter(
            "latchboard_commands_finished", "Commands that ended, by final status.", ["status"], registry=None
        )
        self._seconds = Histogram(
            "latchboard_command_seconds",
            "Time from a queued command to the result of the device, for commands that are DONE.",
            buckets=_COMMAND_BUCKETS_S,
            registry=None,
        )
        for status in ExecutionStatus:
            if status.is_final:
                self._finished.labels(status.value)  # visible as 0 before the first such command

    def notify(self, execution: Execution) -> None:
        self._finished.labels(execution.status.value).inc()
        if execution.status is ExecutionStatus.DONE and execution.finished_ms is not None:
            self._seconds.observe(max(0, execution.finished_ms - execution.created_ms) / SECOND_MS)
        self._waiter.notify(execution)

    def has_waiters(self, execution_id: ExecutionId) -> bool:
        return self._waiter.has_waiters(execution_id)

    def watch(self, execution_id: ExecutionId, by: str) -> AbstractContextManager[ResultWaitHandle[Execution]]:
        return self._waiter.watch(execution_id, by)

    def collect(self) -> Iterable[Metric]:
        yield from self._finished.collect()
        yield from self._seconds.collect()


@dataclass(frozen=True, slots=True)
class BrokerMetricDefinition:
    """`keys`: label value → key of the link's statistics. Without a label there is one entry."""

    name: str
    help_text: str
    keys: Mapping[str, str]
    label: str | None = None


def _metric(name: str, help_text: str, key: str) -> BrokerMetricDefinition:
    return BrokerMetricDefinition(name, help_text, {"": key})


REFUSAL_REASONS = (
    *("credentials", "anonymous", "will", "garbage", "timeout", "full", "busy", "address_full", "banned", "evicted"),
    "takeovers",
)
GAUGES = (
    _metric("connections", "Connected devices.", "connections"),
    _metric("sockets", "Open sockets, including those that have not sent CONNECT.", "sockets"),
    _metric("pending", "Sockets whose CONNECT has not been accepted yet.", "pending"),
    _metric("banned_addresses", "Addresses that the broker holds back at present.", "banned_addresses"),
    _metric("devices_admitted", "Devices whose credentials the broker accepts.", "devices_admitted"),
    _metric("sessions_stored", "Sessions kept for disconnected clients.", "sessions_stored"),
    _metric("broker_sessions", "Sessions at an external broker that this instance reads.", "broker_sessions"),
    _metric("broker_sessions_away", "Those of them without a connection to the broker.", "broker_sessions_away"),
    _metric("inbound_queue_messages", "Messages from devices that wait to be stored.", "inbound_queue"),
    _metric("inbound_queue_bytes", "Size of the messages from devices that wait to be stored.", "inbound_queue_bytes"),
    _metric("outbound_queue_messages", "Messages that wait to be sent to devices.", "outbound_queue"),
    _metric("outbound_inflight_messages", "Messages sent to devices and not acknowledged yet.", "outbound_unacknowledged"),
)
COUNTERS = (
    _metric("connects", "Accepted connections.", "connects"),
    BrokerMetricDefinition(
        "refused", "Refused connections by reason.", {reason: f"refused_{reason}" for reason in REFUSAL_REASONS}, "reason"
    ),
    BrokerMetricDefinition(
        "closed",
        "Connections that the broker closed, by reason.",
        {
            "protocol_error": "closed_protocol_error",
            "keep_alive": "closed_keepalive",
            "slow_reader": "closed_slow_reader",
            "not_admitted": "closed_revoked",
            "taken_over": "takeovers",
        },
        "reason",
    ),
    BrokerMetricDefinition(
        "messages",
        "Messages by kind: telemetry and others from devices, and those sent to devices.",
        {"telemetry": "inbound_telemetry", "other": "inbound_publish", "sent": "outbound_sent"},
        "kind",
    ),
    BrokerMetricDefinition(
        "acknowledged",
        "Acknowledged QoS 1 messages by direction.",
        {"inbound": "inbound_acked", "outbound": "outbound_acked"},
        "direction",
    ),
    BrokerMetricDefinition(
        "traffic_bytes", "MQTT traffic by direction.", {"inbound": "bytes_read", "outbound": "bytes_written"}, "direction"
    ),
    BrokerMetricDefinition(
        "dropped",
        "Dropped messages by reason.",
        {
            "forbidden": "dropped_forbidden",
            "oversize": "dropped_oversize",
            "inbound_queue_full": "dropped_queue_full",
            "expired": "outbound_expired",
            "not_subscribed": "outbound_no_subscriber",
            "too_large_for_client": "outbound_too_large",
            "outbound_queue_full": "outbound_queue_full",
            "external_broker": "dropped_by_broker",
        },
        "reason",
    ),
    _metric("refused_subscriptions", "Topic filters that the broker refused.", "refused_subscribes"),
    _metric("throttled", "How often the broker slowed a device down to its ingest limit.", "throttled"),
)


@service
class BrokerMetricsCollector(Collector):
    """What the link to the devices counts, under names that do not change with its implementation. An external broker has few of
    these counters; the others are left out."""

    read: Callable[[], Mapping[str, float]]

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        stats = self.read()
        for family, metrics in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for metric in metrics:
                values = {value: stats[key] for value, key in metric.keys.items() if key in stats}
                if values:
                    yield labelled_family(family, f"{PREFIX}mqtt_{metric.name}", metric.help_text, metric.label, values)


@service
class UnusableMessageCounter:
    """Counts the unusable messages of devices, and has their accounts told."""

    dropped_messages: DroppedMessageService
    counts: collections.Counter[str] = field(default_factory=collections.Counter, init=False)

    def count(
        self, device_no: int, code: str, count: int, reason: str = "", topic: str | None = None, metric: str | None = None
    ) -> None:
        self.counts[code] += count
        self.dropped_messages.count(device_no, code, count, topic=topic, metric=metric, detail=reason[:200])


@service
class DroppedMessageLog:
    """At most one line a minute and device, which it names by its id."""

    clock: Clock
    _logged_ms: dict[int, int] = field(default_factory=dict, init=False)

    def write(self, device: Device, drop: DroppedMessages) -> None:
        now_ms = self.clock.monotonic_ms()
        logged_ms = self._logged_ms.get(drop.device_no)
        if logged_ms is not None and now_ms - logged_ms < MINUTE_MS:
            return
        if len(self._logged_ms) >= MAX_TRACKED_DEVICES:
            self._logged_ms.clear()  # a few log lines too many are better than unbounded memory
        self._logged_ms[drop.device_no] = now_ms
        log.warning(
            "refused a device" if drop.is_refusal else "dropped an unusable message of a device",
            device_id=device.device_id,
            code=drop.reason,
            count=drop.count,
            topic=drop.topic,
            metric=drop.metric,
            reason=drop.detail,
        )
