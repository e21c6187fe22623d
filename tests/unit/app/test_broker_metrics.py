"""The figures an alarm is written with are those that the broker has."""

from __future__ import annotations

from adapters.engine import _native
from app.runtime.broker_metrics import COUNTERS, GAUGES, BrokerMetricsCollector
from app.runtime.metrics import Metrics


def test_every_figure_is_one_of_the_embedded_brokers_own() -> None:
    stats = _native.Broker().stats()
    told = {key for _, key in GAUGES.values()} | {key for _, _, keys in COUNTERS.values() for key in keys.values()}
    assert told <= set(stats)


def test_the_page_shows_gauges_and_counters_by_reason() -> None:
    metrics = Metrics()
    metrics.register_collector(BrokerMetricsCollector(lambda: {"connections": 3, "refused_will": 2, "connects": 5}))
    page = metrics.render().decode()
    assert "latchboard_mqtt_connections 3.0" in page
    assert 'latchboard_mqtt_refused_total{reason="will"} 2.0' in page
    assert "latchboard_mqtt_connects_total 5.0" in page


def test_a_link_without_these_figures_shows_none() -> None:
    metrics = Metrics()
    metrics.register_collector(BrokerMetricsCollector(lambda: {"stopped": 0}))
    assert b"latchboard_mqtt" not in metrics.render()
