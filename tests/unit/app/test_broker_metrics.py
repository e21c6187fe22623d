"""The metrics of the device link name statistics that a broker has."""

from __future__ import annotations

from adapters.engine import _native
from app.runtime.metrics import COUNTERS, GAUGES, BrokerMetricsCollector, MetricsRegistry


def test_every_metric_reads_a_statistic_of_the_embedded_or_an_external_broker() -> None:
    assert {key for metric in (*GAUGES, *COUNTERS) for key in metric.keys.values()} <= {
        *_native.Broker().stats(),
        "dropped_by_broker",
        "broker_sessions",
        "broker_sessions_away",
    }


def test_the_page_shows_gauges_and_counters_by_reason() -> None:
    metrics = MetricsRegistry()
    metrics.register_collector(BrokerMetricsCollector(lambda: {"connections": 3, "refused_will": 2, "connects": 5}))
    page = metrics.render().decode()
    assert "latchboard_mqtt_connections 3.0" in page
    assert 'latchboard_mqtt_refused_total{reason="will"} 2.0' in page
    assert "latchboard_mqtt_connects_total 5.0" in page


def test_a_link_without_these_statistics_shows_no_metric() -> None:
    metrics = MetricsRegistry()
    metrics.register_collector(BrokerMetricsCollector(lambda: {"stopped": 0}))
    assert b"latchboard_mqtt" not in metrics.render()
