"""The metrics of `/metrics`, in the Prometheus text format.

Names follow https://prometheus.io/docs/practices/naming: one unit per metric, base units, counters end in `_total`. Requests and
commands are counted as they happen; all other values are read at the scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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

from domain.kernel.clock import SECOND_MS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "latchboard_"
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

MetricFamily = type[GaugeMetricFamily] | type[CounterMetricFamily]
MetricReader = Callable[[], float | Mapping[str, float] | None]
"""A value, or values by label value. With None the metric is left out."""


class ReadAtScrapeCollector(Collector):
    """One metric whose value is read at the scrape. `label` names the label of a reader that returns a mapping."""

    def __init__(self, family: MetricFamily, name: str, help_text: str, read: MetricReader, label: str | None = None) -> None:
        self._family = family
        self._name = PREFIX + name
        self._help = help_text
        self._read = read
        self._label = label

    def describe(self) -> Iterable[Metric]:
        yield self._family(self._name, self._help)

    def collect(self) -> Iterable[Metric]:
        value = self._read()
        if value is None:
            return
        values = value if isinstance(value, Mapping) else {"": value}
        yield labelled_family(self._family, self._name, self._help, self._label, values)


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
        self.register_collector(ReadAtScrapeCollector(GaugeMetricFamily, name, help_text, read, label))

    def register_counter(self, name: str, help_text: str, read: MetricReader, *, label: str | None = None) -> None:
        """Register `latchboard_<name>_total`, which only grows."""
        self.register_collector(ReadAtScrapeCollector(CounterMetricFamily, name, help_text, read, label))

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
