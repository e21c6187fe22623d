"""Merging roll-ups of the same hour, and combining hours into longer buckets.

Longer buckets are combined from hours, newest first, whether an hour comes from its roll-up or from its readings. So both give
the same sum to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable

from domain.rules.telemetry_engine_port import AggregateCell


def merge_by_higher_count(one: Iterable[AggregateCell], other: Iterable[AggregateCell]) -> list[AggregateCell]:
    """Merge two roll-ups of an hour: per metric the one with the higher count, since readings are only added or expire."""
    best = {cell[1]: cell for cell in one}
    for cell in other:
        if cell[1] not in best or cell[2] > best[cell[1]][2]:
            best[cell[1]] = cell
    return list(best.values())
