"""Aggregates telemetry by time bucket and metric: the reference definition. `rust/engine/src/bucket_aggregator.rs` must equal it.

Rows always come newest first, because floating-point sums depend on their order: with one order, the sum of roll-ups equals the
sum of the readings to the last bit. A sum beyond the range of a double stays at the largest double.

The stored form of an hourly roll-up: per metric the count, minimum, maximum, sum and last value of its numbers.

A packed roll-up has one entry of 44 bytes per metric: metric number and count (unsigned 32-bit each), minimum, maximum, sum and
last value (IEEE doubles), and the time of the last value within the hour (ms, unsigned 32-bit); little endian, ordered by metric
number.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from domain.kernel.clock import HOUR_MS
from domain.rules.ports import AggregateCell
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


class ReferenceBucketAggregator:
    """The `BucketAggregator` port in Python."""

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
        bucket = self._buckets.get((from_ms, metric_no))
        if bucket is None:
            self._buckets[from_ms, metric_no] = _BucketAggregate(from_ms, metric_no, 1, value, value, value, value, ts_ms)
        else:
            bucket.add_value(value)

    def cells(self) -> list[AggregateCell]:
        return [bucket.to_cell() for _, bucket in sorted(self._buckets.items(), key=lambda item: (-item[0][0], item[0][1]))]


def clamp_to_finite(total: float) -> float:
    return max(-_MAX_DOUBLE, min(_MAX_DOUBLE, total))


_ENTRY = struct.Struct("<IIddddI")
_MAX_COUNT = 2**32 - 1


def pack_rollup(cells: Iterable[AggregateCell]) -> bytes:
    """Pack the cells of one hour."""
    entries = sorted(cells, key=lambda cell: cell[1])
    return b"".join(
        _ENTRY.pack(metric_no, min(count, _MAX_COUNT), low, high, total, last, last_ms - from_ms)
        for from_ms, metric_no, count, low, high, total, last, last_ms in entries
    )


def unpack_rollup(hour: int, packed: bytes, metric_no: int | None = None) -> Iterator[AggregateCell]:
    """Yield the cells of the hour. Raises ValueError for bytes that `pack_rollup` did not write."""
    if len(packed) % _ENTRY.size:
        raise ValueError("unsupported roll-up format")
    from_ms = hour * HOUR_MS
    for number, count, low, high, total, last, offset_ms in _ENTRY.iter_unpack(packed):
        if metric_no is None or number == metric_no:
            yield (from_ms, number, count, low, high, total, last, from_ms + offset_ms)
