"""The future edges of a plan, for firmware that stores each edge separately.

An edge less than a minute away is left out: it could lie in the past when the device reads it, and a timer set for the past runs
a week or a year later. While such an edge exists, the device does not count as holding the whole plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.devices.messages import PlanRow

MIN_LEAD_TIME_S = 60


@dataclass(frozen=True, slots=True)
class FuturePlanEdge:
    slot: int
    relay: bool
    ts: int


def upcoming_edges(rows: Sequence[PlanRow], now_ms: int) -> tuple[list[FuturePlanEdge], bool]:
    """The edges by slot, ON before OFF; and whether these are all future edges."""
    edges = [
        FuturePlanEdge(slot, relay, ts)
        for slot, on_ts, off_ts, enabled in rows
        if enabled
        for relay, ts in ((True, on_ts), (False, off_ts))
        if ts * 1000 > now_ms
    ]
    pending = [edge for edge in edges if edge.ts * 1000 > now_ms + MIN_LEAD_TIME_S * 1000]
    return pending, len(pending) == len(edges)
