"""Merging roll-ups of the same hour, and combining hours into longer buckets.

Longer buckets are combined from hours, newest first, whether an hour comes from its roll-up or from its readings. So both give
the same sum to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.rules.telemetry_engine_port import AggregateCell
from domain.telemetry.engine.bucket_aggregator import clamp_to_finite


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
