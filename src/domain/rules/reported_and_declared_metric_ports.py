"""The ports of the metrics of a device, reported and made known before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ReportedDeviceMetricRepository(Protocol):
    """The metrics that a device has reported. The readings repository of the telemetry part implements it."""

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        """(metric number, name, unit), by name."""


class MetricDeclarationRepository(ReportedDeviceMetricRepository, Protocol):
    """Metrics that are known before a device reports them."""

    async def assign_metric_numbers(self, names: Sequence[str]) -> Sequence[tuple[int, str]]: ...

    async def upsert_device_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None: ...


class HasMetricDeclarations(Protocol):
    @property
    def readings(self) -> MetricDeclarationRepository: ...


class HasReportedDeviceMetrics(Protocol):
    @property
    def readings(self) -> ReportedDeviceMetricRepository: ...
