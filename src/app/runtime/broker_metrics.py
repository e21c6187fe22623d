"""The metrics of the device link: what the embedded broker counts, under names that do not change with its implementation.

An external broker has few of these counters; the others are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.runtime.metrics_registry import PREFIX, labelled_family

LinkStats = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BrokerMetricDefinition:
    """`keys`: label value → key of the link's statistics. Without a label there is one entry."""

    name: str
    help_text: str
    keys: Mapping[str, str]
    label: str | None = None


def _metric(name: str, help_text: str, key: str) -> BrokerMetricDefinition:
    return BrokerMetricDefinition(name, help_text, {"": key})


REFUSAL_REASONS = ("credentials", "anonymous", "will", "garbage", "timeout", "full", "busy", "address_full", "banned", "evicted")
GAUGES = (
    _metric("connections", "Connected devices.", "connections"),
    _metric("sockets", "Open sockets, including those that have not sent CONNECT.", "sockets"),
    _metric("pending", "Sockets whose CONNECT has not been accepted yet.", "pending"),
    _metric("banned_addresses", "Addresses that the broker refuses at present.", "banned_addresses"),
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


class BrokerMetricsCollector(Collector):
    """`read` returns the statistics of the device link."""

    def __init__(self, read: Callable[[], LinkStats]) -> None:
        self._read_stats = read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        stats = self._read_stats()
        for family, metrics in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for metric in metrics:
                values = {value: stats[key] for value, key in metric.keys.items() if key in stats}
                if values:
                    yield labelled_family(family, f"{PREFIX}mqtt_{metric.name}", metric.help_text, metric.label, values)
