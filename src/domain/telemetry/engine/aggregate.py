"""Summing up telemetry by stretch of time and metric: the readable definition. `rust/engine/src/tally.rs` must equal it.

Rows come newest first, everywhere and always, because floating-point sums depend on their order: one order makes a sum out of
roll-ups equal to the sum out of the readings to the last bit. A sum that no double can hold stays at the largest one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from domain.rules.engine_port import AggregateCell
from domain.telemetry.packing import unpack_readings, value_columns

_MAX_DOUBLE = sys.float_info.max


@dataclass(slots=True)
class _BucketAggregate:
    from_ms: int
    metric_no: int
    count: int
    low: float
    high: float
    total: float
    last: float
    last_ms: int

    def add_value(self, value: float) -> None:
        self.count += 1
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value
        self.total = clamp_to_finite(self.total + value)

    def to_cell(self) -> AggregateCell:
        return (self.from_ms, self.metric_no, self.count, self.low, self.high, self.total, self.last, self.last_ms)


class ReferenceAggregator:
    """A `Tally` in Python."""

    def __init__(self, step_ms: int, metric_no: int | None = None) -> None:
        self._step_ms = step_ms
        self._metric_no = metric_no
        self._buckets: dict[tuple[int, int], _BucketAggregate] = {}

    def add(self, rows: Iterable[tuple[int, bytes]]) -> None:
        for ts_ms, packed in rows:
            from_ms = ts_ms - ts_ms % self._step_ms
            for metric_no, value in unpack_readings(packed):
                number, _ = value_columns(value)
                if number is not None and self._metric_no in (None, metric_no):
                    self._add_value(from_ms, metric_no, number, ts_ms)

    def _add_value(self, from_ms: int, metric_no: int, value: float, ts_ms: int) -> None:
        stretch = self._buckets.get((from_ms, metric_no))
        if stretch is None:
            self._buckets[from_ms, metric_no] = _BucketAggregate(from_ms, metric_no, 1, value, value, value, value, ts_ms)
        else:
            stretch.add_value(value)

    def cells(self) -> list[AggregateCell]:
        return [stretch.to_cell() for _, stretch in sorted(self._buckets.items(), key=lambda item: (-item[0][0], item[0][1]))]


def clamp_to_finite(total: float) -> float:
    return max(-_MAX_DOUBLE, min(_MAX_DOUBLE, total))
