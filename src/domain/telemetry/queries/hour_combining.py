"""Combines hours into longer buckets, newest first, whether an hour comes from its roll-up or from its readings: so both give
the same sum to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

from domain.rules.ports import AggregateCell
from domain.telemetry.engine.bucket_aggregator import clamp_to_finite


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
