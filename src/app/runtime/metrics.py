"""What `/metrics` tells (Prometheus text format): requests as they happen, all else read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

MetricValues = Mapping[str, float]


class _CallbackGauge(Collector):
    """Figures that others keep; each is one family with the label `name`."""

    def __init__(self, family: str, help_text: str, read: Callable[[], MetricValues]) -> None:
        self._family = family
        self._help = help_text
        self._read_values = read

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(f"latchboard_{self._family}", self._help, labels=["name"])
        for name, value in self._read_values().items():
            family.add_metric([name], float(value))
        yield family


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "latchboard_http_requests",
            "HTTP requests by method, route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "latchboard_http_request_seconds",
            "HTTP request duration by route.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._label_cache: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """The HTTP adapter's observer. Paths that lead nowhere and methods that nobody has count under one name each: they are
        the caller's choice, and every name is kept for good."""
        place = (method if method in _METHODS else "(other)", route or "(none)", status)
        found = self._label_cache.get(place)
        if found is None:
            requests = self._requests.labels(place[0], place[1], str(status))
            found = self._label_cache[place] = requests, self._request_seconds.labels(place[1])
        found[0].inc()
        found[1].observe(seconds)

    def register_gauge(self, family: str, help_text: str, read: Callable[[], MetricValues]) -> None:
        self._registry.register(_CallbackGauge(family, help_text, read))

    def register_collector(self, collector: Collector) -> None:
        self._registry.register(collector)

    def render(self) -> bytes:
        return generate_latest(self._registry)
