"""Aggregates telemetry by time bucket and metric: the reference definition. `rust/engine/src/bucket_aggregator.rs` must equal it.

Rows always come newest first, because floating-point sums depend on their order: with one order, the sum of roll-ups equals the
sum of the readings to the last bit. A sum beyond the range of a double stays at the largest double.

The stored form of an hourly roll-up has one entry of 44 bytes per metric: metric number and count (unsigned 32-bit each),
minimum, maximum, sum and last value (IEEE doubles), and the time of the last value within the hour (ms, unsigned 32-bit); little
endian, ordered by metric number.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import field

from domain.kernel.clock import HOUR_MS
from domain.kernel.dataclasses import service
from domain.rules.ports import AggregateCell
from domain.telemetry.packing import unpack_readings, value_columns

_MAX_DOUBLE = sys.float_info.max
_ENTRY = struct.Struct("<IIddddI")
_MAX_COUNT = 2**32 - 1


@service
class ReferenceBucketAggregator:
    """The `BucketAggregator` port in Python."""

    step_ms: int
    metric_no: int | None = None
    _cells: dict[tuple[int, int], AggregateCell] = field(default_factory=dict, init=False)

    def add(self, rows: Iterable[tuple[int, bytes]]) -> None:
        for ts_ms, packed in rows:
            from_ms = ts_ms - ts_ms % self.step_ms
            for metric_no, value in unpack_readings(packed):
                number, _ = value_columns(value)
                if number is not None and self.metric_no in (None, metric_no):
                    cell = (from_ms, metric_no, 1, number, number, number, number, ts_ms)
                    newer = self._cells.get((from_ms, metric_no))
                    self._cells[from_ms, metric_no] = cell if newer is None else _add_older(newer, cell)

    def cells(self) -> list[AggregateCell]:
        return _newest_first(self._cells.values())


def combine_cells(cells: Iterable[AggregateCell], step_ms: int) -> list[AggregateCell]:
    """Combine cells of (parts of) hours into buckets of `step_ms`. The result is newest first, then by metric number."""
    combined: dict[tuple[int, int], AggregateCell] = {}
    for cell in _newest_first(cells):
        from_ms, metric_no = cell[0] - cell[0] % step_ms, cell[1]
        newer = combined.get((from_ms, metric_no))
        combined[from_ms, metric_no] = (from_ms, *cell[1:]) if newer is None else _add_older(newer, cell)
    return _newest_first(combined.values())


def _add_older(newer: AggregateCell, older: AggregateCell) -> AggregateCell:
    from_ms, metric_no, count, low, high, total, last, last_ms = newer
    total = max(-_MAX_DOUBLE, min(_MAX_DOUBLE, total + older[5]))
    return from_ms, metric_no, count + older[2], min(low, older[3]), max(high, older[4]), total, last, last_ms


def _newest_first(cells: Iterable[AggregateCell]) -> list[AggregateCell]:
    return sorted(cells, key=lambda cell: (-cell[0], cell[1]))


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
