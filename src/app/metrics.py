"""Numbers for Prometheus. Requests are counted as they are answered; all else is read from the workers when somebody asks,
so that counting costs the work nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.supervisor import Supervisor

BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)
_NOT_A_NAME = re.compile(r"[^a-z0-9_]")

Numbers = Mapping[str, float]
GAUGES = frozenset({"connections", "connected", "devices", "uplink_waiting", "uplink_bytes", "under_way", "clients", "owed"})
"""Names that go up and down; every other number only grows."""


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "latchboard_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "latchboard_http_request_seconds", "From request to response.", ("method",),
            buckets=BUCKETS_S, registry=self._registry,
        )  # fmt: skip
        ProcessCollector(namespace="latchboard", registry=self._registry)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """The HTTP adapter's `Observer`. Unknown routes share one label, so that a scanner cannot fill the memory."""
        self._requests.labels(method, route or "unknown", str(status)).inc()
        self._seconds.labels(method).observe(seconds)

    def watch(self, sources: Mapping[str, Callable[[], Numbers]], supervisor: Supervisor) -> None:
        """`sources`: by subsystem, what gives its numbers. Asked at each scrape."""
        self._registry.register(_Sources(dict(sources), supervisor))

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Sources(Collector):
    def __init__(self, sources: Mapping[str, Callable[[], Numbers]], supervisor: Supervisor) -> None:
        self._sources = sources
        self._supervisor = supervisor

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for subsystem, numbers in self._sources.items():
            for name, value in numbers().items():
                full = f"latchboard_{subsystem}_{_NOT_A_NAME.sub('_', name.lower())}"
                family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
                metric = family(full, f"{subsystem}: {name.replace('_', ' ')}")
                metric.add_metric((), value)
                yield metric
        failures = CounterMetricFamily("latchboard_worker_failures", "Times a worker failed.", labels=("worker",))
        healthy = GaugeMetricFamily("latchboard_worker_healthy", "1 when nothing ails the worker.", labels=("worker",))
        for watch in self._supervisor.watches:
            failures.add_metric((watch.loop.name,), watch.failures + getattr(watch.loop, "failures", 0))
            healthy.add_metric((watch.loop.name,), 0 if watch.trouble else 1)
        yield failures
        yield healthy


def numbers_of(thing: object, *names: str) -> Callable[[], Numbers]:
    """The named attributes, read when asked."""
    return lambda: {name: float(getattr(thing, name)) for name in names}
