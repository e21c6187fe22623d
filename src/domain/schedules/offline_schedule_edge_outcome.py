"""Edges that were left to an offline device: recorded when they are due, announced only when the device confirms them.

A device that holds its plan runs its slots while it is offline, but it may also have lost power. So nothing is announced as fired
until the device is back and tells: by a relay state that it gives its schedule as the cause for, by a relay that is as the edge
wanted it, or, when it reports no relay, by the plan revision that it still holds. An edge that it has not run falls under the
misfire policy of its slot.

A device has one relay, so only its latest edge can be made good; and it is not made good against a later edge, a later command,
or somebody at the device. A report from before the due second tells nothing about the edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from domain.commands.reports import SCHEDULE_CAUSES
from domain.kernel.clock import SECOND_MS
from domain.schedules.due_edges import DueScheduleEdgeDecision, ScheduleEdgeOccurrence
from domain.schedules.model import EdgeOutcome, OfflineScheduleEdge, Schedule, ScheduleStatus, SwitchEdge

RESOLVE_AFTER_MS = 10 * SECOND_MS
"""How long a device that is back may take to report its relay."""
PERSON_CAUSES = frozenset({"button", "switch", "manual"})


@dataclass(frozen=True, slots=True)
class RelayEvidence:
    """What a device reported about its relay. `is_by_command`: the report names a command as the cause."""

    relay: bool
    at_ms: int
    cause: str | None = None
    is_by_command: bool = False


class OfflineScheduleEdgeOutcome(Enum):
    CONFIRMED = auto()
    NOT_RUN = auto()
    SUPERSEDED = auto()
    """Nobody knows whether it ran, and it is not made good any more."""


def judge_by_relay(
    edges: Sequence[OfflineScheduleEdge], evidence: RelayEvidence
) -> Mapping[OfflineScheduleEdge, OfflineScheduleEdgeOutcome]:
    """Conclusions on the left edges of one device; empty when the report says nothing about them."""
    relevant = sorted((edge for edge in edges if edge.due_ts * SECOND_MS <= evidence.at_ms), key=lambda edge: edge.due_ts)
    if not relevant or evidence.is_by_command:
        return {}
    latest, is_by_schedule = relevant[-1], evidence.cause in SCHEDULE_CAUSES
    if evidence.relay is latest.relay:
        earlier = OfflineScheduleEdgeOutcome.CONFIRMED if is_by_schedule else OfflineScheduleEdgeOutcome.SUPERSEDED
        return dict.fromkeys(relevant[:-1], earlier) | {latest: OfflineScheduleEdgeOutcome.CONFIRMED}
    last = OfflineScheduleEdgeOutcome.SUPERSEDED if evidence.cause in PERSON_CAUSES else OfflineScheduleEdgeOutcome.NOT_RUN
    return dict.fromkeys(relevant[:-1], OfflineScheduleEdgeOutcome.SUPERSEDED) | {latest: last}


def judge_by_plan(edges: Sequence[OfflineScheduleEdge]) -> Mapping[OfflineScheduleEdge, OfflineScheduleEdgeOutcome]:
    """Conclusions for a device that is back and has not reported its relay."""
    ordered = sorted(edges, key=lambda edge: edge.due_ts)
    latest = ordered[-1]
    if latest.holds_plan:
        return dict.fromkeys(ordered, OfflineScheduleEdgeOutcome.CONFIRMED)
    return dict.fromkeys(ordered[:-1], OfflineScheduleEdgeOutcome.SUPERSEDED) | {latest: OfflineScheduleEdgeOutcome.NOT_RUN}


def decision_of(edge: OfflineScheduleEdge, now_ts: int, allowed_s: int, *, confirmed: bool) -> DueScheduleEdgeDecision:
    """A left edge in the form of a decided one. A confirmed edge ran in its second."""
    late_s = 0 if confirmed else max(0, now_ts - edge.due_ts)
    other = SwitchEdge.OFF if edge.edge is SwitchEdge.ON else SwitchEdge.ON
    following = None if edge.next_ts is None else ScheduleEdgeOccurrence(edge.next_ts, other)
    return DueScheduleEdgeDecision(ScheduleEdgeOccurrence(edge.due_ts, edge.edge), 0, late_s, late_s > allowed_s, following)


def may_be_made_good(edge: OfflineScheduleEdge, schedule: Schedule, now_ts: int) -> bool:
    """Whether the slot is still as it was when the edge was left, and its next edge is not due yet."""
    if schedule.status is ScheduleStatus.CANCELLED or schedule.revision != edge.revision or not schedule.enabled:
        return False
    return schedule.last_outcome is EdgeOutcome.LEFT_TO_DEVICE and (edge.next_ts is None or now_ts < edge.next_ts)
