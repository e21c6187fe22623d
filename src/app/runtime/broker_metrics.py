"""What `/metrics` tells of the embedded broker: its counters under the names and labels an alarm is written with.

`latchboard_link` shows every figure the device link has, by its own name; these are the ones that do not change with its insides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LinkStats = Mapping[str, float]

GAUGES = {
    "connections": ("Devices that are connected.", "connections"),
    "sockets": ("Open sockets, those that have not logged in yet included.", "sockets"),
    "devices_admitted": ("Devices that may connect.", "devices_admitted"),
    "sessions_stored": ("Sessions kept for clients that are away.", "sessions_stored"),
    "uplink_queue_messages": ("Messages of devices that wait to be stored.", "uplink_queue"),
    "uplink_queue_bytes": ("What they hold; when it reaches its bound, devices wait.", "uplink_queue_bytes"),
    "downlink_queue_messages": ("Messages that wait to be sent to devices.", "downlink_queue"),
    "downlink_unacknowledged_messages": ("Sent to devices and not acknowledged yet.", "downlink_unacknowledged"),
}
COUNTERS: dict[str, tuple[str, str, dict[str, str]]] = {
    "connects": ("Connections that were let in.", "", {"": "connects"}),
    "refused": (
        "Connections that were turned away, by reason.",
        "reason",
        {reason: f"refused_{reason}" for reason in ("credentials", "anonymous", "will", "garbage", "timeout", "full", "busy")},
    ),
    "closed": (
        "Connections that were ended by the broker, by reason.",
        "reason",
        {
            "protocol_error": "closed_protocol_error",
            "keep_alive": "closed_keepalive",
            "slow_reader": "closed_slow_reader",
            "shut_out": "kicked",
            "taken_over": "takeovers",
        },
    ),
    "messages": (
        "Messages by what they were: telemetry and others from devices, those sent to devices.",
        "kind",
        {"telemetry": "uplink_telemetry", "other": "uplink_publish", "sent": "downlink_sent"},
    ),
    "acknowledged": ("QoS-1 messages acknowledged, by direction.", "direction", {"up": "uplink_acked", "down": "downlink_acked"}),
    "bytes": ("MQTT bytes, by direction.", "direction", {"up": "bytes_read", "down": "bytes_written"}),
    "dropped": (
        "Messages that went nowhere, by reason.",
        "reason",
        {
            "forbidden": "dropped_forbidden",
            "oversize": "dropped_oversize",
            "queue_full": "dropped_queue_full",
            "expired": "downlink_expired",
            "unheard": "downlink_unheard",
            "too_large_for_client": "downlink_too_large",
            "downlink_queue_full": "downlink_queue_full",
        },
    ),
    "refused_subscriptions": ("Filters a device may not have.", "", {"": "refused_subscribes"}),
    "throttled": ("Times a device was slowed to its ingest limit.", "", {"": "throttled"}),
}


class BrokerMetricsCollector(Collector):
    """`read`: the device link's figures. A link that has none of these (an external broker) shows none."""

    def __init__(self, read: Callable[[], LinkStats]) -> None:
        self._read_stats = read

    def collect(self) -> Iterable[Metric]:
        stats = self._read_stats()
        for name, (told, key) in GAUGES.items():
            if key in stats:
                yield GaugeMetricFamily(f"latchboard_mqtt_{name}", told, value=stats[key])
        for name, (told, label, keys) in COUNTERS.items():
            found = {value: stats[key] for value, key in keys.items() if key in stats}
            if found:
                yield _counter_family(f"latchboard_mqtt_{name}", told, label, found)


def _counter_family(name: str, told: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, told, labels=[label] if label else [])
    for value, count in values.items():
        family.add_metric([value] if label else [], count)
    return family
