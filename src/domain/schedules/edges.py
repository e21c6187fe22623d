"""When a slot switches: its edges in order, and which of the due ones is run.

The edges of a slot stand in one total order: by second, and within a second the one that comes first in the slot's first
occurrence. Of several due edges only the latest may run, so ON is never replayed once OFF is due. An edge that comes too late for
the slot's misfire policy is missed; it is not run, but it is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.schedules.model import Edge, Misfire, Schedule
from domain.schedules.ports import Recurrence

ON_TIME_S = 60
"""Later than this an edge counts as missed by the service. A minute covers a restart and the busiest minute of a large fleet."""
LATE_S = 2
"""From here on an edge that ran is told as late."""
_CHANGE_S = 2 * 3_600
"""By no more than this does a change to or from summer time lengthen a slot."""
_WALK = 64
"""Edges passed over one by one; after that the walk jumps to where running is still allowed."""


@dataclass(frozen=True, slots=True)
class Due:
    """One edge and its second, Unix time."""

    ts: int
    edge: Edge


@dataclass(frozen=True, slots=True)
class Turn:
    """What a slot that is due does now: `due` runs, or is `missed`; `superseded` earlier ones are passed over (at least so
    many); `following` is the next edge."""

    due: Due
    superseded: int
    late_s: int
    missed: bool
    following: Due | None


def rank(schedule: Schedule, edge: Edge) -> int:
    """0 for the edge that comes first in an occurrence, 1 for the other."""
    first = Edge.ON if schedule.on_ts < schedule.off_ts else Edge.OFF
    return 0 if edge is first else 1


def following(schedule: Schedule, after: Due, recurrence: Recurrence) -> Due | None:
    """The edge after `after` in the slot's order."""
    place = rank(schedule, after.edge)
    candidates = []
    for edge in Edge:
        floor_ts = after.ts - 1 if rank(schedule, edge) > place else after.ts
        at_ts = _first_after(schedule, edge, floor_ts, recurrence)
        if at_ts is not None:
            candidates.append(Due(at_ts, edge))
    return min(candidates, key=lambda due: (due.ts, rank(schedule, due.edge)), default=None)


def first_after(schedule: Schedule, after_ts: int, recurrence: Recurrence) -> Due | None:
    """The earliest edge strictly after the second `after_ts`."""
    last_edge = Edge.OFF if rank(schedule, Edge.OFF) == 1 else Edge.ON
    return following(schedule, Due(after_ts, last_edge), recurrence)


def _first_after(schedule: Schedule, edge: Edge, after_ts: int, recurrence: Recurrence) -> int | None:
    own_ts = schedule.on_ts if edge is Edge.ON else schedule.off_ts
    if schedule.rrule is None:
        return own_ts if own_ts > after_ts else None
    paired_ts = None if edge is Edge.ON else schedule.off_ts
    return recurrence.after(schedule.rrule, schedule.timezone, schedule.on_ts, after_ts, paired_ts=paired_ts)


def allowed_late_s(schedule: Schedule) -> int:
    return ON_TIME_S if schedule.misfire is Misfire.SKIP else max(schedule.misfire_grace_s, ON_TIME_S)


def opening(schedule: Schedule, now_ts: int, done_ts: int, recurrence: Recurrence) -> Due | None:
    """The first edge of a slot that is saved now. None when none of its edges is still to come.

    A slot saved between its two edges begins with the first, late, if its misfire policy allows; one whose last occurrence is
    over waits for the next. Nothing up to the second `done_ts` counts, for the slot has already run until there.
    """
    upcoming = first_after(schedule, max(now_ts - 1, done_ts), recurrence)
    if upcoming is None or rank(schedule, upcoming.edge) == 0:
        return upcoming
    begun_ts = upcoming.ts - abs(schedule.off_ts - schedule.on_ts) - _CHANGE_S
    reach_ts = max(done_ts, now_ts - allowed_late_s(schedule) - 1, begun_ts)
    made_up = first_after(schedule, reach_ts, recurrence)
    while made_up is not None and made_up.ts < upcoming.ts:
        after = following(schedule, made_up, recurrence)
        if after == upcoming:
            return made_up
        made_up = after
    return upcoming


def turn(schedule: Schedule, now_ts: int, recurrence: Recurrence, forgiven_s: int = 0) -> Turn:
    """What the due slot does at `now_ts`. `forgiven_s`: lateness that does not count (a clock set forward, a long queue)."""
    if schedule.next_fire_ts is None or schedule.next_edge is None:
        raise ValueError(f"schedule {schedule.schedule_id} has no edge to decide")
    allowed_s = allowed_late_s(schedule) + forgiven_s
    latest, passed, after = _latest(schedule, now_ts, allowed_s, recurrence)
    late_s = max(0, now_ts - latest.ts)
    return Turn(latest, passed, late_s, late_s > allowed_s, after)


def _latest(
    schedule: Schedule, now_ts: int, allowed_s: int, recurrence: Recurrence
) -> tuple[Due, int, Due | None]:
    """The latest due edge, how many were passed on the way, and the one after it."""
    assert schedule.next_fire_ts is not None  # noqa: S101 - `turn` has asked
    assert schedule.next_edge is not None  # noqa: S101
    latest, passed = Due(schedule.next_fire_ts, schedule.next_edge), 0
    after = following(schedule, latest, recurrence)
    jump_ts = now_ts - allowed_s - 1
    while after is not None and after.ts <= now_ts:
        latest, passed = after, passed + 1
        if passed == _WALK and latest.ts < jump_ts:
            jumped = first_after(schedule, jump_ts, recurrence)
            if jumped is None or jumped.ts > now_ts:
                return latest, passed, jumped
            latest = jumped
        after = following(schedule, latest, recurrence)
    return latest, passed, after
