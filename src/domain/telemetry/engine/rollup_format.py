"""The stored form of an hourly roll-up: per metric the count, minimum, maximum, sum and last value of its numbers.

A packed roll-up has one entry of 44 bytes per metric: metric number and count (unsigned 32-bit each), minimum, maximum, sum and
last value (IEEE doubles), and the time of the last value within the hour (ms, unsigned 32-bit); little endian, ordered by metric
number.

Longer buckets are combined from hours, newest first, whether an hour comes from its roll-up or from its readings. So both give
the same sum to the last bit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from domain.kernel.clock import HOUR_MS
from domain.rules.telemetry_engine_port import AggregateCell
from domain.telemetry.engine.bucket_aggregator import clamp_to_finite

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


def merge_by_higher_count(one: Iterable[AggregateCell], other: Iterable[AggregateCell]) -> list[AggregateCell]:
    """Merge two roll-ups of an hour: per metric the one with the higher count, since readings are only added or expire."""
    best = {cell[1]: cell for cell in one}
    for cell in other:
        if cell[1] not in best or cell[2] > best[cell[1]][2]:
            best[cell[1]] = cell
    return list(best.values())


def combine_cells(cells: Sequence[AggregateCell], step_ms: int) -> list[AggregateCell]:
    """Combine cells of (parts of) hours into buckets of `step_ms`. The result is newest first, then by metric number."""
    combined: dict[tuple[int, int], AggregateCell] = {}
    for cell in sorted(cells, key=lambda cell: (-cell[0], cell[1])):
        from_ms, metric_no, count, low, high, total, last, last_ms = cell
        key = (from_ms - from_ms % step_ms, metric_no)
        newer = combined.get(key)
        if newer is None:
            combined[key] = (key[0], metric_no, count, low, high, total, last, last_ms)
        else:
            combined[key] = (
                *key,
                newer[2] + count,
                min(newer[3], low),
                max(newer[4], high),
                clamp_to_finite(newer[5] + total),
                newer[6],
                newer[7],
            )
    return sorted(combined.values(), key=lambda cell: (-cell[0], cell[1]))
