"""When a slot switches: its edges in order, and which of the due ones is run.

The edges of a slot stand in one total order: by second, and within a second the one that comes first in the slot's first
occurrence. Of several due edges only the latest may run, so ON is never replayed once OFF is due. An edge that comes too late for
the slot's misfire policy is missed; it is not run, but it is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.schedules.model import MisfirePolicy, Schedule, SwitchEdge
from domain.schedules.ports import Recurrence

MISSED_AFTER_S = 60
"""Later than this an edge counts as missed by the service. A minute covers a restart and the busiest minute of a large fleet."""
LATE_AFTER_S = 2
"""From here on an edge that ran is told as late."""
_MAX_DST_SHIFT_S = 2 * 3_600
"""By no more than this does a change to or from summer time lengthen a slot."""
_MAX_STEPS = 64
"""Edges passed over one by one; after that the walk jumps to where running is still allowed."""


@dataclass(frozen=True, slots=True)
class EdgeOccurrence:
    """One edge and its second, Unix time."""

    ts: int
    edge: SwitchEdge


@dataclass(frozen=True, slots=True)
class DueEdgeDecision:
    """What a slot that is due does now: `due` runs, or is `missed`; `superseded` earlier ones are passed over (at least so
    many); `following` is the next edge."""

    due: EdgeOccurrence
    superseded_count: int
    late_s: int
    is_missed: bool
    next_edge: EdgeOccurrence | None


def edge_rank(schedule: Schedule, edge: SwitchEdge) -> int:
    """0 for the edge that comes first in an occurrence, 1 for the other."""
    first = SwitchEdge.ON if schedule.on_ts < schedule.off_ts else SwitchEdge.OFF
    return 0 if edge is first else 1


def next_edge_after(schedule: Schedule, after: EdgeOccurrence, recurrence: Recurrence) -> EdgeOccurrence | None:
    """The edge after `after` in the slot's order."""
    place = edge_rank(schedule, after.edge)
    candidates = []
    for edge in SwitchEdge:
        floor_ts = after.ts - 1 if edge_rank(schedule, edge) > place else after.ts
        at_ts = _next_occurrence_ts(schedule, edge, floor_ts, recurrence)
        if at_ts is not None:
            candidates.append(EdgeOccurrence(at_ts, edge))
    return min(candidates, key=lambda due: (due.ts, edge_rank(schedule, due.edge)), default=None)


def first_edge_after(schedule: Schedule, after_ts: int, recurrence: Recurrence) -> EdgeOccurrence | None:
    """The earliest edge strictly after the second `after_ts`."""
    last_edge = SwitchEdge.OFF if edge_rank(schedule, SwitchEdge.OFF) == 1 else SwitchEdge.ON
    return next_edge_after(schedule, EdgeOccurrence(after_ts, last_edge), recurrence)


def _next_occurrence_ts(schedule: Schedule, edge: SwitchEdge, after_ts: int, recurrence: Recurrence) -> int | None:
    own_ts = schedule.on_ts if edge is SwitchEdge.ON else schedule.off_ts
    if schedule.rrule is None:
        return own_ts if own_ts > after_ts else None
    paired_ts = None if edge is SwitchEdge.ON else schedule.off_ts
    return recurrence.next_occurrence(schedule.rrule, schedule.timezone, schedule.on_ts, after_ts, paired_ts=paired_ts)


def max_lateness_s(schedule: Schedule) -> int:
    return MISSED_AFTER_S if schedule.misfire is MisfirePolicy.SKIP else max(schedule.misfire_grace_s, MISSED_AFTER_S)


def initial_edge(schedule: Schedule, now_ts: int, done_ts: int, recurrence: Recurrence) -> EdgeOccurrence | None:
    """The first edge of a slot that is saved now. None when none of its edges is still to come.

    A slot saved between its two edges begins with the first, late, if its misfire policy allows; one whose last occurrence is
    over waits for the next. Nothing up to the second `done_ts` counts, for the slot has already run until there.
    """
    upcoming = first_edge_after(schedule, max(now_ts - 1, done_ts), recurrence)
    if upcoming is None or edge_rank(schedule, upcoming.edge) == 0:
        return upcoming
    begun_ts = upcoming.ts - abs(schedule.off_ts - schedule.on_ts) - _MAX_DST_SHIFT_S
    reach_ts = max(done_ts, now_ts - max_lateness_s(schedule) - 1, begun_ts)
    made_up = first_edge_after(schedule, reach_ts, recurrence)
    while made_up is not None and made_up.ts < upcoming.ts:
        after = next_edge_after(schedule, made_up, recurrence)
        if after == upcoming:
            return made_up
        made_up = after
    return upcoming


def decide_due_edge(schedule: Schedule, now_ts: int, recurrence: Recurrence, forgiven_s: int = 0) -> DueEdgeDecision:
    """What the due slot does at `now_ts`. `forgiven_s`: lateness that does not count (a clock set forward, a long queue)."""
    if schedule.next_fire_ts is None or schedule.next_edge is None:
        raise ValueError(f"schedule {schedule.schedule_id} has no edge to decide")
    allowed_s = max_lateness_s(schedule) + forgiven_s
    latest, passed, after = _latest_due_edge(schedule, now_ts, allowed_s, recurrence)
    late_s = max(0, now_ts - latest.ts)
    return DueEdgeDecision(latest, passed, late_s, late_s > allowed_s, after)


def _latest_due_edge(
    schedule: Schedule, now_ts: int, allowed_s: int, recurrence: Recurrence
) -> tuple[EdgeOccurrence, int, EdgeOccurrence | None]:
    """The latest due edge, how many were passed on the way, and the one after it."""
    assert schedule.next_fire_ts is not None  # noqa: S101 - `turn` has asked
    assert schedule.next_edge is not None  # noqa: S101
    latest, passed = EdgeOccurrence(schedule.next_fire_ts, schedule.next_edge), 0
    after = next_edge_after(schedule, latest, recurrence)
    jump_ts = now_ts - allowed_s - 1
    while after is not None and after.ts <= now_ts:
        latest, passed = after, passed + 1
        if passed == _MAX_STEPS and latest.ts < jump_ts:
            jumped = first_edge_after(schedule, jump_ts, recurrence)
            if jumped is None or jumped.ts > now_ts:
                return latest, passed, jumped
            latest = jumped
        after = next_edge_after(schedule, latest, recurrence)
    return latest, passed, after
