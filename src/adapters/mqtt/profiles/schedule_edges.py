"""The edges of a plan that are still to come, for firmwares that hold each edge by itself.

An edge that is nearer than a minute is not told: it might be past when the device reads it, and a timer set for the past runs a
week or a year later. While such a one stands, the device must not count as holding the plan, for nobody has told it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.devices.codec import PlanRow

MIN_LEAD_TIME_S = 60


@dataclass(frozen=True, slots=True)
class PlanEdge:
    slot: int
    relay: bool
    ts: int


def upcoming_edges(rows: Sequence[PlanRow], now_ms: int) -> tuple[list[PlanEdge], bool]:
    """The edges by slot, ON before OFF; and whether these are all that are not yet past."""
    edges = [
        PlanEdge(slot, relay, ts)
        for slot, on_ts, off_ts, enabled in rows
        if enabled
        for relay, ts in ((True, on_ts), (False, off_ts))
        if ts * 1000 > now_ms
    ]
    told = [edge for edge in edges if edge.ts * 1000 > now_ms + MIN_LEAD_TIME_S * 1000]
    return told, len(told) == len(edges)
