"""The stored form of an hourly roll-up: per metric the count, minimum, maximum, sum and last value of its numbers.

A packed roll-up has one entry of 44 bytes per metric: metric number and count (unsigned 32-bit each), minimum, maximum, sum and
last value (IEEE doubles), and the time of the last value within the hour (ms, unsigned 32-bit); little endian, ordered by metric
number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from domain.kernel.clock import HOUR_MS
from domain.rules.ports import AggregateCell

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
